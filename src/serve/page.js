// The page: streams a completion with its probabilities, and shows the depth view of a token.
(function () {
  'use strict';
  var base = document.documentElement.dataset.api || '';
  var numbers = ['max_tokens', 'temperature', 'top_k', 'top_p', 'min_p', 'repetition_penalty'];
  var tokens = [], prompt = '', ending = null, running = null, chosen = -1, tipped = null, view = null, stream = 'r', alternatives = 8, endOfText = -1;

  function id(name) { return document.getElementById(name); }
  function make(tag, text, name) {
    var node = document.createElement(tag);
    if (text !== undefined) node.textContent = text;
    if (name) node.className = name;
    return node;
  }
  function percent(logprob) {
    var p = 100 * Math.exp(logprob);
    return (p >= 10 ? p.toFixed(0) : p >= 0.1 ? p.toFixed(1) : p >= 0.001 ? String(Number(p.toPrecision(1))) : p.toExponential(0)) + ' %';
  }
  function shown(text) {
    return text.replace(/\n/g, '⏎').replace(/\t/g, '⇥').replace(/^ | $/g, '␣');
  }
  function say(text, bad) {
    id('state').textContent = text;
    id('state').classList.toggle('bad', Boolean(bad));
  }
  function call(path, body, signal) {
    var headers = {'Content-Type': 'application/json'};
    if (id('key').value) headers.Authorization = 'Bearer ' + id('key').value;
    return fetch(base + path, {method: body ? 'POST' : 'GET', headers: headers, body: body && JSON.stringify(body), signal: signal})
      .then(function (answer) {
        if (answer.ok) return answer;
        if (answer.status === 401) id('key_row').hidden = false;
        return answer.json().then(function (json) { throw new Error(json.error ? json.error.message : answer.statusText); });
      });
  }

  // The name of the model, again and again until it is loaded.
  function greet() {
    call('/tokenizer_info').then(function (answer) { return answer.json(); }).then(function (json) {
      endOfText = json.eos_token_id;
      return call('/v1/models');
    }).then(function (answer) { return answer.json(); }).then(function (json) {
      var model = json.data[0];
      id('model').textContent = model.id;
      alternatives = Math.min(alternatives, model.max_logprobs);
      say(model.parameters.toLocaleString('en') + ' parameters, context of ' + model.max_model_len + ' tokens, DWA ' + model.dwa);
    }).catch(function (error) {
      say(error.message, true);
      if (id('key_row').hidden) setTimeout(greet, 1000);
    });
  }

  function level(logprob) {
    var p = Math.exp(logprob);
    return p < 0.01 ? 0 : p < 0.05 ? 1 : p < 0.2 ? 2 : p < 0.5 ? 3 : 4;
  }

  function addToken(token) {
    var node = make('span', token.text, 'token p' + level(token.logprob)), index = tokens.length;
    node.tabIndex = index === 0 ? 0 : -1;
    node.setAttribute('role', 'button');
    node.setAttribute('aria-label', shown(token.text) + ', ' + percent(token.logprob));
    node.dataset.index = index;
    token.node = node;
    tokens.push(token);
    id('text').appendChild(node);
  }

  function takeChunk(chunk) {
    if (chunk.error) throw new Error(chunk.error.message);
    var choice = chunk.choices[0];
    if (chunk.seed !== undefined) id('about').textContent = 'seed ' + chunk.seed;
    if (!choice) return;
    ending = choice.finish_reason;
    var logprobs = choice.logprobs, texts = textsOf(choice);
    for (var n = 0; n < texts.length; ++n) {
      addToken({text: texts[n], id: choice.token_ids[n], logprob: logprobs.token_logprobs[n], top: logprobs.top_logprobs[n],
        name: logprobs.tokens[n]});
    }
  }

  // What each token of a chunk shows. Several may share a character: the first of these shows it, the others nothing. The end of text has a name
  // and no text.
  function textsOf(choice) {
    var names = choice.logprobs.tokens, rest = choice.text, texts = names.map(function () { return ''; }), n = names.length;
    if (n > 0 && choice.token_ids[n - 1] === endOfText && !rest.endsWith(names[n - 1])) texts[--n] = '∎';
    while (n > 1 && names[n - 1] !== '' && rest.endsWith(names[n - 1])) {
      texts[--n] = names[n];
      rest = rest.slice(0, rest.length - names[n].length);
    }
    if (n > 0) texts[0] = rest;
    return texts;
  }

  function generate() {
    if (running) running.abort();
    running = new AbortController();
    var mine = running, body = {prompt: prompt = id('prompt').value, stream: true, logprobs: alternatives, return_token_ids: true};
    numbers.forEach(function (name) { body[name] = Number(id(name).value); });
    if (id('seed').value !== '') body.seed = Number(id('seed').value);
    if (id('stop_at').value !== '') body.stop = id('stop_at').value;
    tokens = [];
    ending = null;
    chosen = -1;
    id('depth').hidden = true;
    id('about').textContent = '';
    id('text').replaceChildren(make('span', prompt, 'prompt'));
    id('stop').disabled = false;
    var begin = performance.now();
    call('/v1/completions', body, running.signal).then(function (answer) {
      var reader = answer.body.getReader(), decoder = new TextDecoder(), rest = '';
      function more(result) {
        rest += decoder.decode(result.value || new Uint8Array(), {stream: !result.done});
        var events = rest.split('\n\n');
        rest = events.pop();
        events.forEach(function (event) {
          if (event.startsWith('data: ') && event !== 'data: [DONE]') takeChunk(JSON.parse(event.slice(6)));
        });
        return result.done ? undefined : reader.read().then(more);
      }
      return reader.read().then(more);
    }).then(function () {
      var seconds = (performance.now() - begin) / 1000;
      id('about').textContent += ', ' + tokens.length + ' tokens, ' + (tokens.length / seconds).toFixed(1) + ' tokens/s' +
        (ending === 'length' && tokens.length < body.max_tokens ? '; the model’s context is full' : '');
    }).catch(function (error) {
      if (error.name !== 'AbortError') say(error.message, true);
    }).finally(function () {
      if (running !== mine) return;
      running = null;
      id('stop').disabled = true;
      document.body.dataset.generated = tokens.length;
    });
  }

  function showTip(token) {
    var table = make('table'), tip = id('tip');
    tipped = token;
    Object.entries(token.top).sort(function (a, b) { return b[1] - a[1]; }).forEach(function (entry) {
      var row = make('tr', undefined, entry[0] === token.name ? 'now' : '');
      row.append(make('td', shown(entry[0])), make('td', percent(entry[1])));
      table.appendChild(row);
    });
    tip.replaceChildren(table);
    tip.hidden = false;
    placeTip();
  }
  // Again where the text moves under it: the page scrolls, or the window changes.
  function placeTip() {
    var tip = id('tip');
    if (tip.hidden) return;
    var rect = tipped.node.getClientRects()[0] || tipped.node.getBoundingClientRect();
    var left = Math.min(rect.left, innerWidth - tip.offsetWidth - 8), below = rect.bottom + 6;
    tip.style.left = Math.max(8, left) + 'px';
    tip.style.top = (below + tip.offsetHeight > innerHeight ? Math.max(4, rect.top - tip.offsetHeight - 6) : below) + 'px';
  }
  function tokenOf(event) {
    var node = event.target.closest && event.target.closest('.token');
    return node ? tokens[Number(node.dataset.index)] : null;
  }
  function focusToken(index) {
    if (!tokens[index]) return;
    tokens.forEach(function (token) { token.node.tabIndex = -1; });
    tokens[index].node.tabIndex = 0;
    tokens[index].node.focus();
  }

  // The depth at the token before the chosen one, which predicted it.
  function showDepth(index) {
    chosen = index;
    tokens.forEach(function (token, n) { token.node.classList.toggle('chosen', n === index); });
    var before = tokens.slice(0, index).map(function (token) { return token.id; });
    call('/depth', {prompt: prompt, tokens: before, next: tokens[index].id, top: 1}).then(function (answer) { return answer.json(); })
      .then(function (json) {
        if (chosen !== index) return;
        view = json;
        stream = 'r';
        id('depth').hidden = false;
        id('depth_about').textContent = 'At “' + shown(json.token) + '”, from which “' + shown(tokens[index].text) + '” was predicted: ' +
          json.depth + ' blocks, DWA ' + json.dwa + ', mixer ' + json.mixer + '.';
        drawStreams();
        drawReads();
        drawLens();
        document.body.dataset.depth = index;
      }).catch(function (error) { say(error.message, true); });
  }

  function drawStreams() {
    var names = Array.from(new Set(view.modules.map(function (module) { return module.stream; })));
    id('streams').replaceChildren();
    if (names.length < 2) return;
    names.forEach(function (name) {
      var button = make('button', name);
      button.type = 'button';
      button.setAttribute('aria-pressed', name === stream);
      button.addEventListener('click', function () {
        stream = name;
        // In place: a new button would not have the focus.
        Array.from(id('streams').children).forEach(function (other) { other.setAttribute('aria-pressed', other === button); });
        drawReads();
      });
      id('streams').appendChild(button);
    });
  }

  function drawReads() {
    var table = id('reads'), head = make('tr'), body = make('tbody'), first = true;
    id('reads_figure').hidden = view.modules.length === 0;
    head.appendChild(make('th', 'after block'));
    // A label may take the place of the columns up to the next one.
    for (var j = 0, step = view.depth < 16 ? 1 : 5; j <= view.depth; j += step) {
      var column = make('th', String(j));
      column.scope = step > 1 ? 'colgroup' : 'col';
      column.colSpan = Math.min(step, view.depth + 1 - j);
      head.appendChild(column);
    }
    view.modules.forEach(function (module) {
      if (module.stream !== stream) return;
      var row = make('tr'), cells = [], most = 0, name = make('th', String(module.depth));
      name.scope = 'row';
      row.appendChild(name);
      for (var i = 0; i <= view.depth; ++i) cells.push(row.appendChild(make('td')));
      module.contributions.forEach(function (part) { most = Math.max(most, Math.abs(part.weight * part.norm)); });
      module.contributions.forEach(function (part) {
        var cell = cells[part.source], size = part.weight * part.norm, share = most > 0 ? Math.abs(size) / most : 0;
        var text = 'after block ' + module.depth + ' reads ' + part.vector + '_' + part.source + ': weight ' + part.weight.toPrecision(3) +
          ' × norm ' + part.norm.toPrecision(3) + ' = ' + size.toPrecision(3);
        // The newest output may count twice: by itself, and among the sources.
        cell.dataset.text = cell.dataset.text ? cell.dataset.text + '; ' + text : text;
        cell.className = 'in';
        cell.tabIndex = first ? 0 : -1;
        first = false;
        cell.style.background = 'rgba(var(' + (size < 0 ? '--neg' : '--pos') + '),' + (0.06 + 0.94 * share).toFixed(3) + ')';
        cell.setAttribute('aria-label', cell.dataset.text);
      });
      body.appendChild(row);
    });
    var top = make('thead');
    top.appendChild(head);
    table.replaceChildren(top, body);
  }

  function drawLens() {
    var table = id('lens'), top = make('thead'), body = make('tbody'), head = make('tr');
    ['depth', 'prediction', '', 'chosen token', 'rank', 'norm of Y'].forEach(function (name) { head.appendChild(make('th', name)); });
    top.appendChild(head);
    view.predictions.forEach(function (prediction) {
      var best = prediction.top[0], row = make('tr', undefined, best.id === prediction.next.id ? 'hit' : '');
      row.append(make('th', prediction.depth === 0 ? 'embedding' : String(prediction.depth)), make('td', shown(best.text), 'word'),
        make('td', percent(best.logprob)), make('td', percent(prediction.next.logprob)), make('td', String(prediction.next.rank)),
        make('td', prediction.y_norm.toPrecision(3)));
      body.appendChild(row);
    });
    table.replaceChildren(top, body);
  }

  function focusCell(from, dx, dy) {
    var row = from.parentNode, x = from.cellIndex + dx;
    if (dy) row = dy > 0 ? row.nextElementSibling : row.previousElementSibling;
    while (row && x > 0 && x < row.cells.length) {
      if (row.cells[x].classList.contains('in')) {
        from.tabIndex = -1;
        row.cells[x].tabIndex = 0;
        return row.cells[x].focus();
      }
      if (dy) row = dy > 0 ? row.nextElementSibling : row.previousElementSibling; else x += dx;
    }
  }

  var moves = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]};
  id('form').addEventListener('submit', function (event) {
    event.preventDefault();
    generate();
  });
  id('form').addEventListener('keydown', function (event) {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey) && id('form').reportValidity()) generate();
  });
  id('stop').addEventListener('click', function () { if (running) running.abort(); });
  id('key').addEventListener('change', greet);
  ['pointerover', 'focusin'].forEach(function (name) {
    id('text').addEventListener(name, function (event) { var token = tokenOf(event); if (token) showTip(token); });
    id('reads').addEventListener(name, function (event) { if (event.target.dataset.text) id('cell').textContent = event.target.dataset.text; });
  });
  ['pointerout', 'focusout'].forEach(function (name) { id('text').addEventListener(name, function () { id('tip').hidden = true; }); });
  addEventListener('scroll', placeTip, {passive: true});
  addEventListener('resize', placeTip);
  id('text').addEventListener('click', function (event) { var token = tokenOf(event); if (token) showDepth(Number(token.node.dataset.index)); });
  id('text').addEventListener('keydown', function (event) {
    var token = tokenOf(event), index = token && Number(token.node.dataset.index);
    if (!token) return;
    if (event.key === 'ArrowRight' || event.key === 'ArrowDown') focusToken(index + 1);
    else if (event.key === 'ArrowLeft' || event.key === 'ArrowUp') focusToken(index - 1);
    else if (event.key === 'Enter' || event.key === ' ') showDepth(index);
    else return;
    event.preventDefault();
  });
  id('reads').addEventListener('keydown', function (event) {
    if (!moves[event.key] || !event.target.dataset.text) return;
    event.preventDefault();
    focusCell(event.target, moves[event.key][0], moves[event.key][1]);
  });
  greet();
})();
