// Runs inside a copy of the report: does with events what a person does with a pointer, and writes
// what came of it to an element "probe", a line "PROBE name: ok" or "PROBE name: what went wrong" for
// each thing tried.
(function () {
  'use strict';
  var lines = [];
  function check(name, work) {
    var problem;
    try { problem = work(); } catch (error) { problem = String(error); }
    lines.push('PROBE ' + name + ': ' + (problem ? problem : 'ok'));
  }
  function one(selector) {
    var found = document.querySelector(selector);
    if (!found) throw new Error('nothing matches ' + selector);
    return found;
  }
  // A pointer event at a place of the drawing's own coordinates.
  function point(svg, type, x, y, target) {
    var box = svg.getBoundingClientRect(), view = svg.viewBox.baseVal;
    (target || svg).dispatchEvent(new PointerEvent(type, {
      bubbles: true, button: 0,
      clientX: box.left + x / view.width * box.width, clientY: box.top + y / view.height * box.height
    }));
  }
  function tip() { var node = one('#tip'); return node.hidden ? '' : node.innerText; }
  function want(text, part) { return text.indexOf(part) >= 0 ? '' : 'no "' + part + '" in "' + text + '"'; }

  check('script', function () { return document.documentElement.dataset.ready === '1' ? '' : 'did not run to its end'; });
  check('elements', function () {
    var bad = Array.prototype.filter.call(document.querySelectorAll('svg.lines'), function (svg) {
      return svg.querySelectorAll('.plot path.line').length === 0 || svg.querySelectorAll('.axes text').length < 4;
    });
    if (bad.length) return 'line charts without lines or ticks: ' + bad.map(function (svg) { return svg.id; });
    if (!document.querySelectorAll('svg.heat .cells path').length) return 'no cells';
    return document.querySelectorAll('svg.scatter circle').length ? '' : 'no points';
  });
  check('size', function () {
    var svg = one('#train-steps').getBoundingClientRect();
    if (svg.width < 200 || svg.height < 100) return 'chart of ' + svg.width + ' x ' + svg.height;
    return document.documentElement.scrollWidth <= innerWidth ? '' : 'the page is wider than the window';
  });
  check('text', function () {
    // Texts of one chart that lie over each other.
    var problem = '';
    Array.prototype.forEach.call(document.querySelectorAll('figure svg'), function (svg) {
      var boxes = Array.prototype.map.call(svg.querySelectorAll('text'), function (text) {
        var box = text.getBoundingClientRect();
        box.text = text.textContent;
        return box;
      });
      boxes.forEach(function (a, i) {
        boxes.slice(i + 1).forEach(function (b) {
          if (a.width && b.width && a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 3 && b.top < a.bottom - 3)
            problem = problem || svg.id + ' has texts over each other: ' + a.text + ', ' + b.text;
        });
      });
    });
    return problem;
  });
  check('hover a line', function () {
    var svg = one('#validation-steps'), view = svg.viewBox.baseVal;
    point(svg, 'pointerover', view.width - 20, 100);
    point(svg, 'pointermove', view.width - 20, 100);
    var text = tip();
    return want(text, 'step 12') || want(text, 'plain') || want(text, 'dense') || (/\d\.\d/.test(text) ? '' : 'no value in ' + text);
  });
  check('leave', function () {
    point(one('#validation-steps'), 'pointerleave', 0, 0);
    return tip() === '' ? '' : 'the label stays';
  });
  check('hover a cell', function () {
    // The last cell of the last row.
    var svg = one('#weights-dense'), cells = svg.querySelector('.cells'), box = cells.dataset.box.split(',').map(Number);
    var x = box[0] + 4.5 * box[2], y = box[1] + 3.5 * box[3];
    point(svg, 'pointerover', x, y);
    point(svg, 'pointermove', x, y);
    var values = cells.dataset.values.split(/[;,]/), last = values[values.length - 1];
    return want(tip(), 'after block 4, output 4') || want(tip(), String(Number(last)));
  });
  check('hover beside the cells', function () {
    point(one('#weights-dense'), 'pointermove', 1, 1);
    return tip() === '' ? '' : 'the label stays';
  });
  check('hover a point', function () {
    var svg = one('#perplexity-time'), circle = svg.querySelector('circle');
    point(svg, 'pointerover', 100, 100);
    point(svg, 'pointermove', Number(circle.getAttribute('cx')), Number(circle.getAttribute('cy')), circle);
    return want(tip(), 'plain') || want(tip(), 'perplexity');
  });
  check('zoom', function () {
    var svg = one('#train-steps'), path = svg.querySelector('path.line'), before = path.getAttribute('d');
    var ticks = svg.querySelector('.axes').textContent;
    point(svg, 'pointerover', 300, 100);
    point(svg, 'pointerdown', 300, 100);
    point(svg, 'pointermove', 400, 100);
    if (svg.querySelector('.span').classList.contains('off')) return 'the range is not shown';
    point(svg, 'pointerup', 400, 100);
    if (path.getAttribute('d') === before) return 'the line did not change';
    if (svg.querySelector('.axes').textContent === ticks) return 'the ticks did not change';
    if (/NaN|Infinity/.test(svg.outerHTML)) return 'numbers that are none';
    one('.reset').click();
    if (document.querySelector('.reset')) return 'the button stays';
    var after = path.getAttribute('d').match(/-?[\d.]+/g).slice(0, 2).map(Number), then = before.match(/-?[\d.]+/g).slice(0, 2).map(Number);
    return Math.abs(after[0] - then[0]) < 0.2 && Math.abs(after[1] - then[1]) < 0.2 ? '' : 'not as before: ' + after + ' ' + then;
  });
  check('zoom of a logarithmic chart', function () {
    var svg = one('#spectra-0');
    point(svg, 'pointerover', 100, 100);
    point(svg, 'pointerdown', 100, 100);
    point(svg, 'pointermove', 200, 100);
    point(svg, 'pointerup', 200, 100);
    if (/NaN|Infinity/.test(svg.outerHTML)) return 'numbers that are none';
    svg.dispatchEvent(new MouseEvent('dblclick', {bubbles: true}));
    return document.querySelector('.reset') ? 'the button stays' : '';
  });
  check('tabs', function () {
    if (one('[data-tab=time]').hidden === false) return 'all are shown at first';
    one('[data-show=time]').click();
    if (one('[data-tab=time]').hidden || !one('[data-tab=steps]').hidden) return 'the wrong one is shown';
    if (one('#train-time').getBoundingClientRect().width < 200) return 'the chart has no size';
    if (one('[data-show=time]').getAttribute('aria-pressed') !== 'true') return 'not said to be pressed';
    one('[data-show=steps]').click();
    return one('[data-tab=steps]').hidden ? 'does not come back' : '';
  });
  check('legend', function () {
    var figure = one('#validation-steps').closest('figure'), button = figure.querySelector('.legend button');
    button.click();
    if (getComputedStyle(figure.querySelector('path.line')).display !== 'none') return 'the line stays';
    button.click();
    return getComputedStyle(figure.querySelector('path.line')).display === 'none' ? 'the line does not come back' : '';
  });
  var result = document.createElement('pre');
  result.id = 'probe';
  result.textContent = '\n' + lines.join('\n') + '\n';
  document.body.appendChild(result);
})();
