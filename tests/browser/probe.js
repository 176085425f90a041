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
    return want(text, 'step 320') || want(text, 'plain') || want(text, '1x1, mean of 2 seeds') ||
      (/\d\.\d/.test(text) ? '' : 'no value in ' + text);
  });
  check('hover a mean', function () {
    // 320 steps are more than can be told apart: each point says what it is the mean of.
    var svg = one('#train-steps');
    point(svg, 'pointerover', 200, 100);
    point(svg, 'pointermove', 200, 100);
    var text = tip();
    point(svg, 'pointerleave', 0, 0);
    return want(text, 'plain (mean of 3 logged steps)');
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
    point(svg, 'pointermove', 350, 100);
    if (tip().indexOf('logged steps') >= 0) return 'no more points than before: ' + tip();
    point(svg, 'pointerleave', 0, 0);
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
    // One legend for all charts: lines and points.
    var button = one('.legend.runs button'), marks = document.querySelectorAll('[data-key="0"]');
    if (marks.length < 10 || !one('#perplexity-time').querySelector('[data-key="0"]')) return 'few marks: ' + marks.length;
    function shown() { return Array.prototype.filter.call(marks, function (mark) { return getComputedStyle(mark).display !== 'none'; }).length; }
    button.click();
    if (shown()) return 'some stay: ' + shown();
    button.click();
    return shown() === marks.length ? '' : 'some do not come back';
  });
  check('legend of one chart', function () {
    var svg = document.querySelector('[id^=evolution-dense]'), figure = svg.closest('figure'), line = figure.querySelector('path.line');
    figure.querySelector('.legend button').click();
    if (getComputedStyle(line).display !== 'none') return 'the line stays';
    figure.querySelector('.legend button').click();
    return getComputedStyle(line).display === 'none' ? 'the line does not come back' : '';
  });
  check('colors', function () {
    // A run has one color wherever it is.
    var wanted = getComputedStyle(one('.legend.runs [data-run="1"]')).color, other = '';
    document.querySelectorAll('[data-key="1"]').forEach(function (mark) {
      if (mark.tagName !== 'text' && getComputedStyle(mark).color !== wanted) other = mark.closest('svg').id;
    });
    return other && 'another color in ' + other;
  });
  check('smoothing', function () {
    var slider = one('#smoothing'), path = one('#train-steps').querySelector('path.line'), before = path.getAttribute('d');
    slider.value = '0.9';
    slider.dispatchEvent(new Event('input', {bubbles: true}));
    if (path.getAttribute('d') === before) return 'the line did not change';
    if (!one('#train-steps').querySelector('path.raw').getAttribute('d')) return 'the curve itself is not behind it';
    if (one('.smoothing output').textContent !== '0.9') return 'no value beside the slider';
    slider.value = '0';
    slider.dispatchEvent(new Event('input', {bubbles: true}));
    return path.getAttribute('d') === before || path.getAttribute('d').length > 100 ? '' : 'does not come back';
  });
  check('logarithmic axes', function () {
    var svg = one('#train-steps'), ticks = svg.querySelector('.axes').textContent;
    one('[data-switch=logx]').click();
    if (svg.querySelector('.axes').textContent === ticks) return 'log x changes nothing';
    one('[data-switch=logy]').click();
    var wrong = Array.prototype.find.call(document.querySelectorAll('svg'), function (chart) { return /NaN|Infinity/.test(chart.outerHTML); });
    if (wrong) return 'numbers that are none in ' + wrong.id;
    one('[data-switch=logx]').click();
    one('[data-switch=logy]').click();
    return svg.querySelector('.axes').textContent === ticks ? '' : 'does not come back';
  });
  check('seeds', function () {
    var svg = one('#validation-steps'), member = svg.querySelector('path.member'), band = svg.querySelector('path.band');
    function seen(node) { return getComputedStyle(node).display !== 'none'; }
    if (seen(member) || !seen(band)) return 'not a band at first';
    one('[data-switch=bands]').click();
    if (!seen(member) || seen(band)) return 'not one by one';
    one('[data-switch=bands]').click();
    return '';
  });
  check('more curves', function () {
    ['#gradient-steps', '#throughput-steps', '#rate-steps'].forEach(one);
    return '';
  });
  check('table', function () {
    // Loss and perplexity are in view without scrolling, also on a phone.
    var heads = one('.results').querySelectorAll('thead th'), right = one('.results').parentNode.getBoundingClientRect().right;
    if (heads[1].textContent !== 'Validation loss' || heads[2].textContent !== 'Perplexity') return 'other columns come first';
    return heads[2].getBoundingClientRect().right <= right + 1 ? '' : 'perplexity is out of view';
  });
  check('labels of points', function () { return want(one('#perplexity-time').textContent, '4 blocks, '); });
  var result = document.createElement('pre');
  result.id = 'probe';
  result.textContent = '\n' + lines.join('\n') + '\n';
  document.body.appendChild(result);
})();
