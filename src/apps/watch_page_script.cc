#include "apps/watch_page_script.h"

namespace eaglet::apps {

// A chart (svg_chart.cc) says in data attributes what its frame shows: data-box (left, right, top, bottom),
// data-x and data-y (ranges), data-unit ("step" or "minutes"); the charts' parent has data-times (step and
// clock by turns) and data-epoch (clock at minute 0). Its drawing is taken once, and drawn again for another
// axis or range. What is chosen stands in the address after '#', so that it survives a reload and can be sent
// to others: #axis=time&step=100:200
const char* const kWatchViewScript = R"js('use strict';
const look = {axis: 'step', zoom: {}};
let dragging = null;
const numbers = text => (text || '').split(' ').filter(Boolean).map(Number);
const clock = seconds => new Date(seconds * 1000).toISOString();

function readAddress() {
  for (const [name, value] of new URLSearchParams(location.hash.slice(1))) {
    const range = value.split(':').map(Number);
    if (name === 'axis' && value === 'time') look.axis = 'time';
    else if (range.length === 2 && range[0] < range[1]) look.zoom[name] = range;
  }
}
function writeAddress() {
  const chosen = new URLSearchParams();
  if (look.axis === 'time') chosen.set('axis', 'time');
  for (const [name, range] of Object.entries(look.zoom)) chosen.set(name, range.map(v => +v.toPrecision(12)).join(':'));
  history.replaceState(null, '', '#' + chosen);
}

// Clock of a step, between those that are known; beyond them at the pace of the last two.
function timeOfStep(step, times) {
  let at = 2;
  while (at + 2 < times.length && times[at] < step) at += 2;
  const [s0, t0, s1, t1] = times.slice(at - 2, at + 2);
  return t0 + (step - s0) / (s1 - s0) * (t1 - t0);
}

function drawingOf(svg) {
  if (svg.drawing) return svg.drawing;
  const [left, right, top, bottom] = numbers(svg.dataset.box), [x0, x1] = numbers(svg.dataset.x), [y0, y1] = numbers(svg.dataset.y);
  const group = svg.closest('.charts').dataset, times = numbers(group.times), epoch = Number(group.epoch);
  const d = {left, right, top, bottom, x0, x1, y0, y1, unit: svg.dataset.unit, label: svg.dataset.label, toTime: null};
  if (d.unit === 'minutes' && epoch > 0) d.toTime = v => epoch + 60 * v;
  if (d.unit === 'step' && times.length >= 4) d.toTime = v => timeOfStep(v, times);
  const all = (selector, keep) => [...svg.querySelectorAll(selector)].map(node => ({node, ...keep(node)}));
  const at = (node, name) => Number(node.getAttribute(name));
  d.paths = all('.plot path', node => ({points: [...node.getAttribute('d').matchAll(/([ML])(\S+) (\S+)/g)].map(m => [m[1], +m[2], +m[3]])}));
  d.marks = all('.plot line.at', node => ({x: at(node, 'x1')}));
  d.heights = all('.plot .height', node => ({y: at(node, node.tagName === 'text' ? 'y' : 'y1'), text: node.tagName === 'text'}));
  d.bands = all('.plot rect', node => ({x: at(node, 'x'), width: at(node, 'width')}));
  d.hits = all('.hit', node => ({x: at(node.children[0], 'x'), width: at(node.children[0], 'width'), line: at(node.children[1], 'x1')}));
  d.axes = svg.querySelector('.axes');
  return svg.drawing = d;
}

function niceStep(span, count) {
  const raw = span / count, power = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 5, 10].map(f => f * power).find(step => raw <= step * (1 + 1e-9));
}
const timeSteps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 2592000];
function ticks(lo, hi, step, name) {
  const all = [];
  for (let i = Math.ceil(lo / step); i * step <= hi && all.length < 20; ++i) all.push([i * step, name(i * step)]);
  return all;
}
const plain = step => value => Math.abs(value) < step * 1e-6 ? '0' : Math.abs(value) >= 1e5 || Math.abs(value) < 1e-3 ? value.toPrecision(3)
  : value.toFixed(Math.max(0, Math.ceil(-Math.log10(step) - 1e-9)));
function xTicks(unit, lo, hi) {
  if (unit !== 'time') {
    const step = Math.max(unit === 'step' ? 1 : 0, niceStep(hi - lo, 6));
    return ticks(lo, hi, step, plain(step));
  }
  const step = timeSteps.find(s => (hi - lo) / s <= 6) || (hi - lo) / 3;
  return ticks(lo, hi, step, v => step < 60 ? clock(v).slice(11, 19) : step < 86400 ? clock(v).slice(11, 16) : clock(v).slice(5, 10));
}

function drawAxes(d, unit, lo, hi, y0, y1, placeX, placeY) {
  const add = (name, attributes, text) => {
    const node = document.createElementNS('http://www.w3.org/2000/svg', name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text) node.textContent = text;
    d.axes.append(node);
  };
  d.axes.replaceChildren();
  const yStep = niceStep(y1 - y0, 5);
  for (const [value, name] of ticks(y0, y1, yStep, plain(yStep))) {
    add('line', {class: 'grid', x1: d.left, x2: d.right, y1: placeY(value), y2: placeY(value)});
    add('text', {class: 'tick', x: d.left - 6, y: placeY(value) + 4, 'text-anchor': 'end'}, name);
  }
  for (const [value, name] of xTicks(unit, lo, hi))
    add('text', {class: 'tick', x: placeX(value), y: d.bottom + 16, 'text-anchor': 'middle'}, name);
  add('text', {class: 'tick', x: d.right, y: d.bottom + 34, 'text-anchor': 'end'}, unit === 'time' ? 'time, UTC, ' + clock(hi).slice(0, 10) : d.label);
}

// Where a chart's x of the server lies now; what it shows, in its unit.
function viewOf(svg) {
  const d = drawingOf(svg), unit = look.axis === 'time' && d.toTime ? 'time' : d.unit;
  const value = x => {
    const v = d.x0 + (x - d.left) / (d.right - d.left) * (d.x1 - d.x0);
    return unit === 'time' ? d.toTime(v) : v;
  };
  const whole = [value(d.left), value(d.right)], wanted = look.zoom[unit];
  const zoomed = wanted && wanted[0] < whole[1] && wanted[1] > whole[0];
  const [lo, hi] = zoomed ? wanted : whole;
  const place = v => d.left + (v - lo) / (hi - lo) * (d.right - d.left);
  return {d, unit, lo, hi, zoomed, place, move: x => place(value(x)), valueAt: x => lo + (x - d.left) / (d.right - d.left) * (hi - lo)};
}

function draw(svg) {
  const {d, unit, lo, hi, zoomed, place, move} = viewOf(svg), inside = x => x >= d.left - .5 && x <= d.right + .5;
  const set = (node, attributes) => { for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value); };
  let high = d.top, low = d.bottom;  // of what is to be seen, in the drawing's own heights
  if (zoomed) {
    const seen = d.paths.flatMap(p => p.points.filter(([, x]) => inside(move(x))).map(([, , y]) => y));
    if (seen.length > 0) {
      const least = seen.reduce((a, b) => Math.min(a, b)), most = seen.reduce((a, b) => Math.max(a, b)), room = Math.max(1e-6, .05 * (most - least), 0.2);
      [high, low] = [least - room, most + room];
    }
  }
  const moveY = y => d.top + (y - high) / (low - high) * (d.bottom - d.top);
  const valueY = y => d.y1 + (y - d.top) / (d.bottom - d.top) * (d.y0 - d.y1), [y0, y1] = [valueY(low), valueY(high)];
  for (const p of d.paths) set(p.node, {d: p.points.map(([pen, x, y]) => pen + move(x).toFixed(2) + ' ' + moveY(y).toFixed(2)).join(' ')});
  for (const m of d.marks) set(m.node, {x1: move(m.x), x2: move(m.x)});
  for (const h of d.heights) set(h.node, h.text ? {y: moveY(h.y + 4) - 4} : {y1: moveY(h.y), y2: moveY(h.y)});
  for (const b of d.bands) set(b.node, {x: move(b.x), width: Math.max(.5, move(b.x + b.width) - move(b.x))});
  for (const h of d.hits) {
    const from = Math.max(d.left, move(h.x)), to = Math.min(d.right, move(h.x + h.width));
    set(h.node, {display: to > from ? 'inline' : 'none'});
    if (to > from) { set(h.node.children[0], {x: from, width: to - from}); set(h.node.children[1], {x1: move(h.line), x2: move(h.line)}); }
  }
  drawAxes(d, unit, lo, hi, y0, y1, place, value => d.bottom - (value - y0) / (y1 - y0) * (d.bottom - d.top));
  svg.querySelector('.plot').setAttribute('clip-path', 'url(#plot-area)');
}

const charts = () => [...document.querySelectorAll('svg[data-box]')];
function drawAll() {
  const untouched = look.axis === 'step' && Object.keys(look.zoom).length === 0;
  for (const svg of charts()) if (!untouched || svg.drawing) draw(svg);
  const bar = document.querySelector('#view');
  if (charts().length === 0) return bar.replaceChildren();
  const button = (text, on, action) => {
    const node = document.createElement('button');
    node.textContent = text;
    node.setAttribute('aria-pressed', on);
    node.onclick = () => { action(); writeAddress(); drawAll(); };
    return node;
  };
  bar.replaceChildren('x axis: ', button('steps', look.axis === 'step', () => look.axis = 'step'), ' ', button('time', look.axis === 'time', () => look.axis = 'time'),
    ' ', button('whole range', Object.keys(look.zoom).length === 0, () => look.zoom = {}), ' drag over a chart to zoom, double click for the whole range');
}

function placeOfPointer(svg, event) {
  const {d} = viewOf(svg), frame = svg.getBoundingClientRect();
  return Math.min(d.right, Math.max(d.left, (event.clientX - frame.left) / frame.width * svg.viewBox.baseVal.width));
}
function selection(svg) {
  const {d} = viewOf(svg), node = document.createElementNS('http://www.w3.org/2000/svg', 'rect');
  for (const [key, value] of Object.entries({class: 'selection', y: d.top, height: d.bottom - d.top, x: 0, width: 0})) node.setAttribute(key, value);
  svg.append(node);
  return node;
}
document.addEventListener('pointerdown', event => {
  const svg = event.target.closest('svg[data-box]');
  if (svg && event.button === 0) dragging = {svg, from: placeOfPointer(svg, event), to: null, node: null};
});
document.addEventListener('pointermove', event => {
  if (!dragging) return;
  dragging.to = placeOfPointer(dragging.svg, event);
  const [from, to] = [dragging.from, dragging.to].sort((a, b) => a - b);
  dragging.node = dragging.node || selection(dragging.svg);
  dragging.node.setAttribute('x', from);
  dragging.node.setAttribute('width', to - from);
});
document.addEventListener('pointerup', () => {
  const drag = dragging;
  dragging = null;
  if (!drag) return;
  if (drag.node) drag.node.remove();
  if (drag.to === null || Math.abs(drag.to - drag.from) < 6) return;
  const {unit, valueAt} = viewOf(drag.svg);
  look.zoom[unit] = [valueAt(Math.min(drag.from, drag.to)), valueAt(Math.max(drag.from, drag.to))];
  writeAddress();
  drawAll();
});
document.addEventListener('dblclick', event => {
  const svg = event.target.closest('svg[data-box]');
  if (!svg) return;
  delete look.zoom[viewOf(svg).unit];
  writeAddress();
  drawAll();
});
document.addEventListener('DOMContentLoaded', () => { readAddress(); drawAll(); });
)js";

const char* const kWatchLiveScript = R"js(
const query = location.search;
let last = Date.now(), fetched = 0;
const events = new EventSource('/api/v1/events' + query);
events.onmessage = async () => {
  last = Date.now();
  const rest = document.querySelector('main:hover .hit:hover') ? 10000 : 2000;  // who reads a value is not disturbed
  if (document.hidden || dragging || last - fetched < rest) return;
  fetched = last;
  const answer = await fetch('/content' + query);
  if (!answer.ok || dragging) return;
  document.querySelector('main').innerHTML = await answer.text();
  drawAll();
};
setInterval(() => {
  const quiet = (Date.now() - last) / 1000;
  document.querySelector('main').classList.toggle('stale', quiet > 15);
  document.querySelector('#age').textContent = quiet > 15 ? 'last point ' + Math.round(quiet) + ' s ago' : 'live';
}, 1000);
)js";

}  // namespace eaglet::apps
