
// Line charts: values under the pointer, dragging zooms into a range of x, a double click or the
// button shows all again, the legend hides and shows lines. Heat maps and points: values under the
// pointer. Tabs choose the axis of the curves. Data are read from the attributes when first needed,
// so that opening a page costs nothing.
(function () {
  'use strict';
  var SVG = 'http://www.w3.org/2000/svg';
  var tip = document.getElementById('tip');

  function each(root, selector, work) {
    Array.prototype.forEach.call(root.querySelectorAll(selector), work);
  }
  function add(parent, name, text, className) {
    var node = document.createElement(name);
    if (text !== undefined) node.textContent = text;
    if (className) node.className = className;
    return parent.appendChild(node);
  }
  function svgNode(parent, name, attributes, text) {
    var node = document.createElementNS(SVG, name);
    Object.keys(attributes).forEach(function (key) { node.setAttribute(key, attributes[key]); });
    if (text !== undefined) node.textContent = text;
    return parent.appendChild(node);
  }
  function numbers(text) {
    return text === '' ? [] : text.split(',').map(function (v) { return v === '' ? null : Number(v); });
  }

  function shortNumber(v) {
    if (v === null || !isFinite(v)) return '–';
    var size = Math.abs(v);
    if (size > 0 && (size < 1e-3 || size >= 1e15)) return String(Number(v.toPrecision(4)).toExponential());
    return size >= 1000 ? Math.round(v).toLocaleString('en-US') : String(Number(v.toPrecision(5)));
  }
  function tickLabel(v) {
    var size = Math.abs(v);
    if (size < 1e-12) return '0';
    if (size < 1e-3) return Number(v.toPrecision(3)).toExponential().replace('+', '');
    var unit = size >= 1e9 ? [1e9, 'B'] : size >= 1e6 ? [1e6, 'M'] : size >= 1e4 ? [1e3, 'k'] : [1, ''];
    return Number((v / unit[0]).toPrecision(5)) + unit[1];
  }

  // The label beside the pointer. rows: [{key: classes, name, value}]
  function showTip(event, head, rows) {
    tip.textContent = '';
    head.split('\n').forEach(function (line) { add(tip, 'div', line, 'head'); });
    rows.forEach(function (row) {
      var line = add(tip, 'div', undefined, 'row ' + row.key);
      add(line, 'i');
      add(line, 'span', row.name);
      add(line, 'b', row.value);
    });
    tip.hidden = false;
    var width = tip.offsetWidth, height = tip.offsetHeight;
    var left = event.clientX + 16, top = event.clientY - height - 14;
    if (left + width > innerWidth - 4) left = event.clientX - width - 16;
    tip.style.left = Math.max(4, left) + 'px';
    tip.style.top = (top < 4 ? event.clientY + 20 : top) + 'px';
  }
  function hideTip() { tip.hidden = true; }

  function place(svg, event) {
    var box = svg.getBoundingClientRect(), view = svg.viewBox.baseVal;
    return {
      x: (event.clientX - box.left) / box.width * view.width,
      y: (event.clientY - box.top) / box.height * view.height
    };
  }

  function niceTicks(low, high, count) {
    if (!(high > low)) return [low];
    var raw = (high - low) / count, power = Math.pow(10, Math.floor(Math.log10(raw))), step = 10 * power;
    [1, 2, 2.5, 5].some(function (f) { if (f * power < raw) return false; step = f * power; return true; });
    var ticks = [];
    for (var k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) ticks.push(k * step);
    return ticks;
  }
  function logTicks(low, high, count) {
    var decades = Math.log10(high / low), ticks = [], stride = Math.ceil(decades / (count + 1));
    if (decades < 0.9) return niceTicks(low, high, count);
    for (var e = Math.floor(Math.log10(low)); e <= Math.log10(high); e++) {
      if (Math.abs(e) % stride !== 0) continue;
      (decades * 3 > count + 2 ? [1] : [1, 2, 5]).forEach(function (f) {
        var tick = f * Math.pow(10, e);
        if (tick >= low && tick <= high) ticks.push(tick);
      });
    }
    return ticks;
  }

  function lineChart(svg) {
    var figure = svg.closest('figure'), plot = svg.querySelector('.plot'), axes = svg.querySelector('.axes');
    var X = numbers(plot.dataset.x), Y = numbers(plot.dataset.y), log = plot.dataset.log === '1';
    var full = {x0: X[0], x1: X[1], y0: Y[0], y1: Y[1]}, view = Object.assign({}, full);
    var lines = Array.prototype.map.call(plot.querySelectorAll('path.line'), function (path) {
      return {
        path: path, key: path.getAttribute('class').replace('line', ''), name: path.dataset.name,
        x: numbers(path.dataset.xs), y: numbers(path.dataset.ys)
      };
    });
    var cursor = svgNode(svg, 'line', {'class': 'cursor off', y1: Y[3], y2: Y[2]});
    var span = svgNode(svg, 'rect', {'class': 'span off', y: Y[3], height: Y[2] - Y[3]});
    var from = null, reset = null;

    function scale(v) { return log ? Math.log10(Math.max(v, view.y0 * 1e-3)) : v; }
    function px(v) { return X[2] + (X[3] - X[2]) * (v - view.x0) / (view.x1 - view.x0); }
    function py(v) { return Y[2] + (Y[3] - Y[2]) * (scale(v) - scale(view.y0)) / (scale(view.y1) - scale(view.y0)); }
    function xAt(p) { return view.x0 + (p - X[2]) / (X[3] - X[2]) * (view.x1 - view.x0); }
    function inside(event) { return Math.max(X[2], Math.min(X[3], place(svg, event).x)); }
    function hidden(line) { return line.path.classList.contains('off'); }
    function missing(line, i) { return line.x[i] === null || line.y[i] === null || (log && line.y[i] <= 0); }

    function draw() {
      axes.textContent = '';
      var free = 0;  // right of the label before; widths as in SvgAxes
      niceTicks(view.x0, view.x1, 6).forEach(function (t) {
        svgNode(axes, 'line', {'class': 'grid', x1: px(t), x2: px(t), y1: Y[2], y2: Y[3]});
        var label = tickLabel(t), half = 8.5 / 2 * label.length;
        if (px(t) - half < free) return;
        free = px(t) + half + 4;
        svgNode(axes, 'text', {'class': 'soft', 'text-anchor': 'middle', x: px(t), y: Y[2] + 17}, label);
      });
      (log ? logTicks : niceTicks)(view.y0, view.y1, 5).forEach(function (t) {
        svgNode(axes, 'line', {'class': 'grid', x1: X[2], x2: X[3], y1: py(t), y2: py(t)});
        svgNode(axes, 'text', {'class': 'soft', 'text-anchor': 'end', x: X[2] - 6, y: py(t) + 4}, tickLabel(t));
      });
      lines.forEach(function (line) {
        var path = '', pen = false;
        for (var i = 0; i < line.x.length; i++) {
          if (missing(line, i)) { pen = false; continue; }
          path += (pen ? 'L' : 'M') + px(line.x[i]).toFixed(1) + ' ' + py(line.y[i]).toFixed(1) + (pen ? '' : 'h.1');
          pen = true;
        }
        line.path.setAttribute('d', path);
      });
    }
    function showAll() {
      Object.assign(view, full);
      draw();
      if (reset) { reset.remove(); reset = null; }
    }
    function zoom(low, high) {
      var least = Infinity, most = -Infinity;
      lines.forEach(function (line) {
        for (var i = 0; i < line.x.length && !hidden(line); i++) {
          if (missing(line, i) || line.x[i] < low || line.x[i] > high) continue;
          least = Math.min(least, line.y[i]);
          most = Math.max(most, line.y[i]);
        }
      });
      if (least > most) return;
      view.x0 = low;
      view.x1 = high;
      var room = log ? Math.pow(most / least, 0.05) : (most - least) * 0.05;
      if (most > least) {
        view.y0 = log ? least / room : least - room;
        view.y1 = log ? most * room : most + room;
      }
      draw();
      if (reset) return;
      reset = add(figure, 'button', 'show all', 'reset');
      reset.type = 'button';
      reset.addEventListener('click', showAll);
    }
    // The values of all lines nearest to x.
    function rowsAt(x) {
      var rows = [], at = null;
      lines.forEach(function (line) {
        var best = -1;
        if (hidden(line)) return;
        for (var i = 0; i < line.x.length; i++) {
          if (!missing(line, i) && (best < 0 || Math.abs(line.x[i] - x) < Math.abs(line.x[best] - x))) best = i;
        }
        if (best < 0) return;
        if (at === null || Math.abs(line.x[best] - x) < Math.abs(at - x)) at = line.x[best];
        rows.push({key: line.key, name: line.name, value: shortNumber(line.y[best])});
      });
      return {at: at, rows: rows};
    }

    svg.addEventListener('pointerdown', function (event) {
      if (event.button) return;
      from = inside(event);
    });
    svg.addEventListener('pointermove', function (event) {
      var p = inside(event), values = rowsAt(xAt(p));
      if (values.at === null) return;
      var x = px(values.at);
      cursor.setAttribute('x1', x);
      cursor.setAttribute('x2', x);
      cursor.classList.toggle('off', x < X[2] || x > X[3]);
      if (from !== null && Math.abs(p - from) > 4) {
        span.setAttribute('x', Math.min(p, from));
        span.setAttribute('width', Math.abs(p - from));
        span.classList.remove('off');
      }
      showTip(event, plot.dataset.label + ' ' + shortNumber(values.at), values.rows);
    });
    svg.addEventListener('pointerup', function (event) {
      var p = inside(event), begin = from;
      from = null;
      span.classList.add('off');
      if (begin !== null && Math.abs(p - begin) > 8) zoom(xAt(Math.min(p, begin)), xAt(Math.max(p, begin)));
    });
    ['pointerleave', 'pointercancel'].forEach(function (name) {
      svg.addEventListener(name, function () {
        from = null;
        cursor.classList.add('off');
        span.classList.add('off');
        hideTip();
      });
    });
    svg.addEventListener('dblclick', showAll);
  }

  function heatMap(svg) {
    var cells = svg.querySelector('.cells'), box = numbers(cells.dataset.box), rows = numbers(cells.dataset.rows);
    function table(text) { return text === undefined ? null : text.split(';').map(numbers); }
    var values = table(cells.dataset.values), errors = table(cells.dataset.errors);
    var here = svgNode(svg, 'rect', {'class': 'here off', width: box[2], height: box[3]});
    function hide() { hideTip(); here.classList.add('off'); }
    svg.addEventListener('pointermove', function (event) {
      var at = place(svg, event), column = Math.floor((at.x - box[0]) / box[2]), row = Math.floor((at.y - box[1]) / box[3]);
      var value = values[row] === undefined ? undefined : values[row][column];
      if (value === undefined || value === null) { hide(); return; }
      here.setAttribute('x', box[0] + column * box[2]);
      here.setAttribute('y', box[1] + row * box[3]);
      here.classList.remove('off');
      var error = errors && errors[row][column];
      showTip(event, cells.dataset.rowWord + ' ' + rows[row] + ', ' + cells.dataset.columnWord + ' ' + column + '\n' +
        shortNumber(value) + (error ? ' ± ' + shortNumber(error) : ''), []);
    });
    svg.addEventListener('pointerleave', hide);
  }

  function points(svg) {
    svg.addEventListener('pointermove', function (event) {
      var text = event.target.dataset && event.target.dataset.tip;
      if (text) showTip(event, text, []); else hideTip();
    });
    svg.addEventListener('pointerleave', hideTip);
  }

  var kinds = {lines: lineChart, heat: heatMap, scatter: points};
  each(document, 'svg.chart', function (svg) {
    Object.keys(kinds).forEach(function (kind) {
      if (!svg.classList.contains(kind)) return;
      svg.addEventListener('pointerover', function () { kinds[kind](svg); }, {once: true});
    });
  });
  each(document, '.legend button', function (button) {
    button.addEventListener('click', function () {
      var show = button.getAttribute('aria-pressed') !== 'true', figure = button.closest('figure');
      button.setAttribute('aria-pressed', show);
      var line = figure.querySelectorAll('.plot path.line')[Number(button.dataset.series)];
      if (line) line.classList.toggle('off', !show);
    });
  });
  each(document, '.tabs', function (tabs) {
    tabs.addEventListener('click', function (event) {
      var chosen = event.target.closest('button');
      if (!chosen) return;
      each(tabs, 'button', function (button) { button.setAttribute('aria-pressed', button === chosen); });
      each(document, '[data-tab]', function (part) { part.hidden = part.dataset.tab !== chosen.dataset.show; });
    });
  });
  document.documentElement.dataset.ready = '1';
})();
