
// Line charts: values under the pointer, dragging zooms into a range of x and shows more points, a
// double click or the button shows everything; smoothing and logarithmic axes for the curves. Heat
// maps and points: values under the pointer. The legend of the page hides and shows a run in all
// charts; tabs choose the axis of the curves. Data are read from the attributes when first needed,
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

  // Settings of the curves, shared by all of their charts.
  var settings = {smoothing: 0, logx: false, logy: false};

  // Exponential moving average with the bias of its start removed.
  function smoothed(values, weight) {
    if (!weight) return values;
    var sum = 0, norm = 0;
    return values.map(function (v) {
      if (v === null) return null;
      sum = weight * sum + (1 - weight) * v;
      norm = weight * norm + (1 - weight);
      return sum / norm;
    });
  }

  function lineChart(svg) {
    var figure = svg.closest('figure'), plot = svg.querySelector('.plot'), axes = svg.querySelector('.axes');
    var X = numbers(plot.dataset.x), Y = numbers(plot.dataset.y), most = Number(plot.dataset.most);
    var curves = !!svg.closest('[data-tab]'), smooth = plot.dataset.smooth === '1';
    var logx = false, logy = plot.dataset.log === '1';
    var drawn = {x0: X[0], x1: X[1], y0: Y[0], y1: Y[1]}, view = Object.assign({}, drawn);
    var lines = Array.prototype.map.call(plot.querySelectorAll('path.line'), function (path) {
      var data = path.dataset;
      return {
        path: path, key: path.getAttribute('class').replace('line', ''), name: data.name,
        x: numbers(data.xs), raw: numbers(data.ys), y: numbers(data.ys), counts: data.counts === undefined ? null : numbers(data.counts),
        low: data.low === undefined ? null : numbers(data.low), high: data.high === undefined ? null : numbers(data.high),
        band: data.low === undefined ? null : path.previousElementSibling, faint: null
      };
    });
    var cursor = svgNode(svg, 'line', {'class': 'cursor off', y1: Y[3], y2: Y[2]});
    var span = svgNode(svg, 'rect', {'class': 'span off', y: Y[3], height: Y[2] - Y[3]});
    var from = null, reset = null, range = null;

    function sx(v) { return logx ? Math.log10(Math.max(v, view.x0 * 1e-3)) : v; }
    function sy(v) { return logy ? Math.log10(Math.max(v, view.y0 * 1e-3)) : v; }
    function px(v) { return X[2] + (X[3] - X[2]) * (sx(v) - sx(view.x0)) / (sx(view.x1) - sx(view.x0)); }
    function py(v) { return Y[2] + (Y[3] - Y[2]) * (sy(v) - sy(view.y0)) / (sy(view.y1) - sy(view.y0)); }
    function xAt(p) {
      var v = sx(view.x0) + (p - X[2]) / (X[3] - X[2]) * (sx(view.x1) - sx(view.x0));
      return logx ? Math.pow(10, v) : v;
    }
    function inside(event) { return Math.max(X[2], Math.min(X[3], place(svg, event).x)); }
    function hidden(line) { return getComputedStyle(line.path).display === 'none'; }
    function missing(line, i, values) {
      var x = line.x[i], y = values[i];
      return x === null || y === null || (logx && x <= 0) || (logy && y <= 0);
    }

    // The points of a line between low and high and one on either side, as means over stretches where
    // they are more than can be told apart: [{x, y, n, low, high}], null for a gap.
    function points(line, values, low, high) {
      var first = 0, last = line.x.length - 1;
      while (first < last && line.x[first + 1] !== null && line.x[first + 1] < low) first++;
      while (last > first && line.x[last - 1] !== null && line.x[last - 1] > high) last--;
      var stretch = line.counts ? Math.max(1, Math.ceil((last - first + 1) / most)) : 1, result = [];
      for (var begin = first; begin <= last; begin += stretch) {
        var x = 0, y = 0, n = 0, kept = -1;
        for (var i = begin; i < begin + stretch && i <= last; i++) {
          if (missing(line, i, values)) continue;
          var count = line.counts ? line.counts[i] : 1;
          x += line.x[i] * count;
          y += values[i] * count;
          n += count;
          kept = i;
        }
        if (n) result.push({x: x / n, y: y / n, n: n, low: line.low && line.low[kept], high: line.high && line.high[kept]});
        else if (stretch === 1) result.push(null);
      }
      return result;
    }
    function pathOf(line, list) {
      var path = '', pen = false;
      list.forEach(function (p) {
        if (!p) { pen = false; return; }
        path += (pen ? 'L' : 'M') + px(p.x).toFixed(1) + ' ' + py(p.y).toFixed(1) + (pen ? '' : 'h.1');
        pen = true;
      });
      return path;
    }
    function bandOf(list) {
      var all = list.filter(Boolean), edge = all.map(function (p) { return px(p.x).toFixed(1) + ' ' + py(p.high).toFixed(1); });
      all.reverse().forEach(function (p) { edge.push(px(p.x).toFixed(1) + ' ' + py(p.low).toFixed(1)); });
      return edge.length ? 'M' + edge.join('L') + 'Z' : '';
    }
    function drawLine(line) {
      line.shown = points(line, line.y, view.x0, view.x1);
      line.path.setAttribute('d', pathOf(line, line.shown));
      if (line.band) line.band.setAttribute('d', bandOf(line.shown));
      if (line.y !== line.raw && !line.faint) {
        line.faint = document.createElementNS(SVG, 'path');
        plot.insertBefore(line.faint, plot.firstChild);
        if (line.path.dataset.key !== undefined) line.faint.dataset.key = line.path.dataset.key;
      }
      if (!line.faint) return;
      line.faint.setAttribute('class', 'raw ' + line.path.getAttribute('class'));
      line.faint.setAttribute('d', line.y === line.raw ? '' : pathOf(line, points(line, line.raw, view.x0, view.x1)));
    }
    function draw() {
      axes.textContent = '';
      var free = 0;  // right end of the label before; widths as in SvgAxes
      (logx ? logTicks : niceTicks)(view.x0, view.x1, 6).forEach(function (t) {
        svgNode(axes, 'line', {'class': 'grid', x1: px(t), x2: px(t), y1: Y[2], y2: Y[3]});
        var label = tickLabel(t), half = 8.5 / 2 * label.length;
        if (px(t) - half < free) return;
        free = px(t) + half + 4;
        svgNode(axes, 'text', {'class': 'soft', 'text-anchor': 'middle', x: px(t), y: Y[2] + 17}, label);
      });
      (logy ? logTicks : niceTicks)(view.y0, view.y1, 5).forEach(function (t) {
        svgNode(axes, 'line', {'class': 'grid', x1: X[2], x2: X[3], y1: py(t), y2: py(t)});
        svgNode(axes, 'text', {'class': 'soft', 'text-anchor': 'end', x: X[2] - 6, y: py(t) + 4}, tickLabel(t));
      });
      lines.forEach(drawLine);
    }
    // The view that holds the visible lines between low and high (null: all of them).
    function fit(low, high) {
      var x0 = Infinity, x1 = -Infinity, y0 = Infinity, y1 = -Infinity;
      lines.forEach(function (line) {
        if (hidden(line)) return;
        for (var i = 0; i < line.x.length; i++) {
          if (missing(line, i, line.y) || (low !== null && (line.x[i] < low || line.x[i] > high))) continue;
          x0 = Math.min(x0, line.x[i]);
          x1 = Math.max(x1, line.x[i]);
          y0 = Math.min(y0, line.low ? line.low[i] : line.y[i]);
          y1 = Math.max(y1, line.high ? line.high[i] : line.y[i]);
        }
      });
      if (x0 > x1) return false;
      function room(a, b, log) {
        if (b <= a) return [log ? a / 1.1 : a - Math.max(1e-9, Math.abs(a) * 0.1), log ? a * 1.1 : a + Math.max(1e-9, Math.abs(a) * 0.1)];
        var r = log ? Math.pow(b / a, 0.04) : (b - a) * 0.04;
        return log ? [a / r, b * r] : [a - r, b + r];
      }
      var rx = low === null ? room(x0, x1, logx) : [low, high], ry = room(y0, y1, logy && y0 > 0);
      view = {x0: rx[0], x1: rx[1], y0: ry[0], y1: ry[1]};
      return true;
    }
    function asDrawn() {
      return !logx && logy === (plot.dataset.log === '1') && lines.every(function (line) {
        return line.y === line.raw && !line.path.classList.contains('off');
      });
    }
    // Draws with the settings of the page, in the range that was chosen.
    function update() {
      logx = curves && settings.logx;
      logy = plot.dataset.log === '1' || (curves && settings.logy && lines.some(function (line) {
        return line.raw.some(function (v) { return v > 0; });
      }));
      lines.forEach(function (line) {
        line.y = smooth && !line.band ? smoothed(line.raw, settings.smoothing) : line.raw;
      });
      if (range) fit(range[0], range[1]);
      else if (asDrawn() || !fit(null, null)) view = Object.assign({}, drawn);
      draw();
    }
    function showAll() {
      range = null;
      update();
      if (reset) { reset.remove(); reset = null; }
    }
    function zoom(low, high) {
      var before = range;
      range = [low, high];
      if (!fit(low, high)) { range = before; return; }
      update();
      if (reset) return;
      reset = add(figure, 'button', 'show all', 'reset');
      reset.type = 'button';
      reset.addEventListener('click', showAll);
    }
    // The drawn point of each line nearest to x.
    function rowsAt(x) {
      var rows = [], at = null;
      lines.forEach(function (line) {
        if (hidden(line)) return;
        if (!line.shown) line.shown = points(line, line.y, view.x0, view.x1);
        var best = null;
        line.shown.forEach(function (p) { if (p && (!best || Math.abs(p.x - x) < Math.abs(best.x - x))) best = p; });
        if (!best) return;
        if (at === null || Math.abs(best.x - x) < Math.abs(at - x)) at = best.x;
        var note = best.n > 1 ? ' (mean of ' + best.n + ' ' + plot.dataset.countWord + ')' : '';
        if (line.y !== line.raw) note += ' (smoothed)';
        if (line.low) note += ' (' + shortNumber(best.low) + ' to ' + shortNumber(best.high) + ')';
        rows.push({key: line.key, name: line.name + note, value: shortNumber(best.y)});
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
    return {update: update, zoom: zoom, range: function () { return range; }, busy: function () { return from !== null; }};
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

  function scatter(svg) {
    svg.addEventListener('pointermove', function (event) {
      var text = event.target.dataset && event.target.dataset.tip;
      if (text) showTip(event, text, []); else hideTip();
    });
    svg.addEventListener('pointerleave', hideTip);
  }

  // Charts come to life when they are first needed.
  var kinds = {lines: lineChart, heat: heatMap, scatter: scatter}, alive = {};
  function wake(svg) {
    Object.keys(kinds).forEach(function (kind) {
      if (svg.classList.contains(kind) && !(svg.id in alive)) alive[svg.id] = kinds[kind](svg) || null;
    });
    return alive[svg.id];
  }
  each(document, 'svg.chart', function (svg) {
    svg.addEventListener('pointerover', function () { wake(svg); }, {once: true});
  });
  function updateCurves() {
    each(document, '[data-tab] svg.lines', function (svg) { wake(svg).update(); });
  }

  function pressed(button) { return button.getAttribute('aria-pressed') === 'true'; }
  function showRun(button, show) {
    button.setAttribute('aria-pressed', show);
    each(document, '[data-key="' + button.dataset.run + '"]', function (mark) {
      mark.classList.toggle('off', !show);
      if (mark.dataset.low !== undefined) mark.previousElementSibling.classList.toggle('off', !show);
    });
  }
  each(document, '.legend button', function (button) {
    button.addEventListener('click', function () {
      if (button.dataset.run !== undefined) { showRun(button, !pressed(button)); return; }
      var show = !pressed(button), line = button.closest('figure').querySelectorAll('.plot path.line')[Number(button.dataset.series)];
      button.setAttribute('aria-pressed', show);
      if (line) line.classList.toggle('off', !show);
    });
  });
  function showTab(name) {
    each(document, '.tabs button', function (button) { button.setAttribute('aria-pressed', button.dataset.show === name); });
    each(document, '[data-tab]', function (part) { part.hidden = part.dataset.tab !== name; });
  }
  each(document, '.tabs button', function (button) {
    button.addEventListener('click', function () { showTab(button.dataset.show); });
  });
  function setSwitch(button, on) {
    button.setAttribute('aria-pressed', on);
    if (button.dataset.switch === 'bands') document.body.classList.toggle('lines-of-seeds', !on);
    else settings[button.dataset.switch] = on;
  }
  each(document, '[data-switch]', function (button) {
    button.addEventListener('click', function () {
      setSwitch(button, !pressed(button));
      updateCurves();
    });
  });
  var slider = document.getElementById('smoothing');
  function setSmoothing(value) {
    settings.smoothing = Number(value);
    slider.value = value;
    slider.parentNode.querySelector('output').textContent = value;
  }
  if (slider) slider.addEventListener('input', function () { setSmoothing(slider.value); updateCurves(); });

  // A page of runs that go on reloads itself and keeps what was chosen.
  var seconds = Number(document.documentElement.dataset.refresh), store = 'denseformer ' + location.pathname;
  function saveChoices() {
    var choices = {smoothing: settings.smoothing, switches: {}, hidden: [], ranges: {}};
    each(document, '.tabs button', function (button) { if (pressed(button)) choices.tab = button.dataset.show; });
    each(document, '[data-switch]', function (button) { choices.switches[button.dataset.switch] = pressed(button); });
    each(document, '[data-run]', function (button) { if (!pressed(button)) choices.hidden.push(button.dataset.run); });
    Object.keys(alive).forEach(function (id) {
      if (alive[id] && alive[id].range()) choices.ranges[id] = alive[id].range();
    });
    sessionStorage.setItem(store, JSON.stringify(choices));
  }
  function restoreChoices() {
    var choices = JSON.parse(sessionStorage.getItem(store));
    if (!choices) return;
    if (choices.tab) showTab(choices.tab);
    each(document, '[data-switch]', function (button) { setSwitch(button, choices.switches[button.dataset.switch] === true); });
    each(document, '[data-run]', function (button) { if (choices.hidden.indexOf(button.dataset.run) >= 0) showRun(button, false); });
    if (slider) setSmoothing(choices.smoothing);
    updateCurves();
    Object.keys(choices.ranges).forEach(function (id) {
      var svg = document.getElementById(id);
      if (svg) wake(svg).zoom(choices.ranges[id][0], choices.ranges[id][1]);
    });
  }
  function refresh() {
    var busy = document.hidden || Object.keys(alive).some(function (id) { return alive[id] && alive[id].busy(); });
    if (busy) { setTimeout(refresh, 1000); return; }
    try { saveChoices(); } catch (error) { /* no storage: the choices are lost */ }
    location.reload();
  }
  if (seconds) {
    try { restoreChoices(); } catch (error) { /* no storage */ }
    setTimeout(refresh, 1000 * seconds);
  }
  document.documentElement.dataset.ready = '1';
})();
