// Runs in the page of `denseformer serve` and writes one line per check: "PROBE name: ok" or what is wrong.
(function () {
  'use strict';
  var lines = [];
  function one(selector) {
    var found = document.querySelector(selector);
    if (!found) throw new Error('no ' + selector);
    return found;
  }
  function check(name, test) {
    var wrong;
    try { wrong = test(); } catch (error) { wrong = 'threw ' + error.message; }
    lines.push('PROBE ' + name + ': ' + (wrong || 'ok'));
  }
  // The browser's clock is virtual and does not wait for the server: a call that blocks takes real time.
  function wait() {
    var call = new XMLHttpRequest();
    call.open('GET', document.documentElement.dataset.api + '/health', false);
    call.send();
  }
  function until(holds) {
    return new Promise(function (done) {
      var tries = 0, timer = setInterval(function () {
        wait();
        if (!holds() && ++tries < 8000) return;
        clearInterval(timer);
        done();
      }, 25);
    });
  }
  function key(node, name, more) {
    node.dispatchEvent(new KeyboardEvent('keydown', Object.assign({key: name, bubbles: true, cancelable: true}, more)));
  }
  function tokens() { return document.querySelectorAll('#text .token'); }

  until(function () { return one('#model').textContent; }).then(function () {
    check('model', function () { return one('#model').textContent === 'run' && /context of 32/.test(one('#state').textContent) ? '' : one('#state').textContent; });
    check('width', function () { return document.documentElement.scrollWidth <= innerWidth ? '' : 'wider than the window: ' + document.documentElement.scrollWidth; });
    check('dark', function () {
      var dark = matchMedia('(prefers-color-scheme: dark)').matches, back = getComputedStyle(document.body).backgroundColor;
      return (back === 'rgb(14, 18, 22)') === dark ? '' : 'background ' + back;
    });
    one('#prompt').value = 'the quick';
    one('#max_tokens').value = '9';
    one('#seed').value = '4';
    key(one('#prompt'), 'Enter', {ctrlKey: true});
    return until(function () { return document.body.dataset.generated; });
  }).then(function () {
    check('tokens', function () { return tokens().length === 9 ? '' : tokens().length + ' tokens, ' + one('#state').textContent; });
    check('colors', function () { return Array.prototype.every.call(tokens(), function (node) { return /\bp[0-4]\b/.test(node.className); }) ? '' : 'not all colored'; });
    check('seed and speed', function () { return /seed 4, 9 tokens, [\d.]+ tokens\/s/.test(one('#about').textContent) ? '' : one('#about').textContent; });
    check('alternatives', function () {
      tokens()[2].dispatchEvent(new PointerEvent('pointerover', {bubbles: true}));
      var rows = one('#tip').querySelectorAll('tr');
      if (one('#tip').hidden || rows.length < 5 || rows.length > 6) return 'hidden or ' + rows.length;
      if (!one('#tip').querySelector('tr.now')) return 'the token itself is not marked';
      var box = one('#tip').getBoundingClientRect();
      if (box.left < 0 || box.right > innerWidth) return 'out of view';
      one('#prompt').rows += 2;  // the text moves down
      dispatchEvent(new Event('resize'));
      var moved = one('#tip').getBoundingClientRect(), token = tokens()[2].getBoundingClientRect();
      if (moved.top < token.bottom && moved.bottom > token.top) return 'over its token';
      if (Math.abs(moved.top - token.bottom) > 20 && Math.abs(moved.bottom - token.top) > 20) return 'does not follow its token';
      one('#prompt').rows -= 2;
      tokens()[2].dispatchEvent(new PointerEvent('pointerout', {bubbles: true}));
      return one('#tip').hidden ? '' : 'stays';
    });
    check('arrow keys', function () {
      tokens()[0].focus();
      key(tokens()[0], 'ArrowRight');
      if (document.activeElement !== tokens()[1]) return 'the focus does not move';
      return one('#tip').hidden ? 'no alternatives on focus' : '';
    });
    key(tokens()[5], 'Enter');
    return until(function () { return document.body.dataset.depth === '5'; });
  }).then(function () {
    check('depth', function () { return one('#depth').hidden ? 'hidden: ' + one('#state').textContent : ''; });
    check('reads', function () {
      var cells = document.querySelectorAll('#reads td.in');
      if (cells.length !== 2 + 3 + 4 + 5) return cells.length + ' cells';
      cells[0].focus();
      key(cells[0], 'ArrowDown');
      if (!/^after block 2 reads X_0: weight \S+ × norm \S+ = \S+$/.test(one('#cell').textContent)) return one('#cell').textContent;
      return /NaN|undefined|Infinity/.test(one('#reads').innerHTML) ? 'numbers that are none' : '';
    });
    check('labels of depths', function () {
      var labels = Array.from(document.querySelectorAll('#reads thead th[scope]'));
      if (labels.map(function (label) { return label.textContent; }).join() !== '0,1,2,3,4') return one('#reads thead').textContent;
      return labels.some(function (label) { return label.scrollWidth > label.offsetWidth + 1; }) ? 'cut off' : '';
    });
    check('streams', function () {
      var buttons = one('#streams').querySelectorAll('button');
      if (buttons.length !== 2) return buttons.length + ' buttons';
      buttons[1].focus();
      buttons[1].click();
      if (document.activeElement !== buttons[1]) return 'the focus is lost';
      var pressed = Array.from(buttons, function (button) { return button.getAttribute('aria-pressed'); }).join();
      return pressed === 'false,true' ? '' : 'pressed: ' + pressed;
    });
    check('lens', function () {
      var rows = one('#lens').querySelectorAll('tr');
      if (rows.length !== 6) return rows.length + ' rows';
      return /NaN|undefined|Infinity/.test(one('#lens').innerHTML) ? 'numbers that are none' : '';
    });
    check('width with all parts', function () { return document.documentElement.scrollWidth <= innerWidth ? '' : 'wider than the window: ' + document.documentElement.scrollWidth; });
    one('#temperature').value = '0';
    one('#max_tokens').value = '100000';
    one('#go').click();
    return until(function () { return tokens().length > 3; });
  }).then(function () {
    check('generate again', function () { return one('#depth').hidden && tokens().length > 3 ? '' : 'the old one stays'; });
    return until(function () { return /tokens\/s/.test(one('#about').textContent); });
  }).then(function () {
    check('ending', function () { return /the model’s context is full$/.test(one('#about').textContent) ? '' : one('#about').textContent; });
    // Tokens that share characters: 'é' of two, and the end of text.
    var real = window.fetch, chunk = {choices: [{index: 0, text: 'ébc', token_ids: [195, 169, 98, 99, 256], finish_reason: 'stop', logprobs: {
      tokens: ['bytes:\\xc3', 'bytes:\\xa9', 'b', 'c', '<|endoftext|>'], token_logprobs: [-1, -1, -1, -1, -1], top_logprobs: [{}, {}, {}, {}, {}]}}]};
    delete document.body.dataset.generated;
    window.fetch = function () { return Promise.resolve(new Response(': a comment\n\ndata: ' + JSON.stringify(chunk) + '\n\ndata: [DONE]\n\n')); };
    one('#go').click();
    window.fetch = real;
    return until(function () { return document.body.dataset.generated; });
  }).then(function () {
    check('shared characters', function () {
      var texts = Array.from(tokens(), function (node) { return node.textContent; }).join('|');
      return texts === 'é||b|c|∎' ? '' : texts;
    });
    one('#top_p').value = '5';
    one('#go').click();
    check('wrong values', function () { return one('#top_p').validity.valid ? 'not noticed' : ''; });
  }).then(function () {
    var result = document.createElement('pre');
    result.id = 'probe';
    result.textContent = '\n' + lines.join('\n') + '\n';
    document.body.appendChild(result);
  });
})();
