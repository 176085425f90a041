// Style sheet and script of the report.
#ifndef DENSEFORMER_ANALYSIS_REPORT_ASSETS_H_
#define DENSEFORMER_ANALYSIS_REPORT_ASSETS_H_

#include <string_view>

namespace denseformer {

inline constexpr std::string_view kReportStyle = R"css(
:root{color-scheme:light dark;--ink:#1d232b;--soft:#5d6772;--line:#dfe4ea;--page:#f6f7f9;--card:#ffffff;--link:#0063a3}
@media (prefers-color-scheme:dark){:root{--ink:#e8ebef;--soft:#9aa5b1;--line:#2c343d;--page:#0f1317;--card:#161b21;--link:#7cc1f2}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:1180px;margin:0 auto;padding:24px 16px 64px}
h1{font-size:1.7rem;margin:.2em 0}h2{font-size:1.25rem;margin:2.2em 0 .6em}p.soft,.soft{color:var(--soft)}
nav{display:flex;flex-wrap:wrap;gap:.4em 1em;margin:.8em 0}nav a{color:var(--link)}
.scroll{overflow-x:auto;background:var(--card);border:1px solid var(--line);border-radius:10px}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{padding:.5em .8em;text-align:right;white-space:nowrap;border-bottom:1px solid var(--line)}
th:first-child,td:first-child,th:nth-child(2),td:nth-child(2){text-align:left}
tr:last-child td{border-bottom:0}th{font-weight:600}td.best{font-weight:700}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,480px),1fr));gap:16px}
figure{margin:0;background:var(--card);border:1px solid var(--line);border-radius:10px;padding:8px;min-width:0}
figure svg{display:block;width:100%;height:auto;touch-action:pan-y}
figcaption{color:var(--soft);font-size:.86rem;padding:2px 8px 6px}
ul{padding-left:1.2em}details{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:.6em 1em;margin:.6em 0}
summary{cursor:pointer;font-weight:600}pre{overflow-x:auto;font-size:.85rem;white-space:pre-wrap;overflow-wrap:anywhere}
.tabs{display:flex;gap:.5em;margin:.4em 0 .8em}.tabs button{font:inherit;padding:.3em .9em;border-radius:8px;border:1px solid var(--line);
background:var(--card);color:var(--ink);cursor:pointer}.tabs button[aria-pressed=true]{background:var(--ink);color:var(--page)}
#tip{position:fixed;z-index:9;pointer-events:none;background:var(--ink);color:var(--page);padding:.4em .7em;border-radius:8px;
font-size:.82rem;line-height:1.4;max-width:90vw;display:none}
.chart .cursor{stroke:var(--soft);stroke-dasharray:3 3}.chart .span{fill:var(--soft);opacity:.15}
)css";

// Line charts: the nearest values under the pointer, dragging zooms into a range of x, a double
// click shows all again. Heat maps and points: the <title> of the shape as a label.
inline constexpr std::string_view kReportScript = R"js(
(function(){
'use strict';
var tip=document.getElementById('tip');
function show(text,e){tip.textContent='';text.split('\n').forEach(function(line){var d=document.createElement('div');d.textContent=line;tip.appendChild(d);});
 tip.style.display='block';var w=tip.offsetWidth,h=tip.offsetHeight;
 tip.style.left=Math.max(4,Math.min(innerWidth-w-4,e.clientX+14))+'px';tip.style.top=Math.max(4,e.clientY-h-12)+'px';}
function hide(){tip.style.display='none';}
function num(v){if(v===null||!isFinite(v))return '–';var a=Math.abs(v);return a>=1e6||(a>0&&a<1e-3)?v.toExponential(2):String(+v.toPrecision(5));}
document.querySelectorAll('svg.heat rect,svg.scatter circle').forEach(function(shape){
 var title=shape.querySelector('title');if(!title)return;var text=title.textContent;
 shape.addEventListener('pointermove',function(e){show(text,e);});shape.addEventListener('pointerleave',hide);});
var ns='http://www.w3.org/2000/svg';
document.querySelectorAll('svg.lines').forEach(function(svg){
 var plot=svg.querySelector('.plot'),axes=svg.querySelector('.axes');
 var X=plot.dataset.x.split(',').map(Number),Y=plot.dataset.y.split(',').map(Number),log=plot.dataset.log==='1';
 var full={x0:X[0],x1:X[1],y0:Y[0],y1:Y[1]},view=Object.assign({},full);
 var lines=Array.prototype.map.call(plot.querySelectorAll('path.line'),function(p){
  function list(s){return s===''?[]:s.split(',').map(function(v){return v==='null'?null:Number(v);});}
  return {el:p,name:p.dataset.name,x:list(p.dataset.xs),y:list(p.dataset.ys)};});
 var bands=plot.querySelectorAll('path.band');
 var cursor=document.createElementNS(ns,'line');cursor.setAttribute('class','cursor');cursor.setAttribute('y1',Y[3]);cursor.setAttribute('y2',Y[2]);cursor.style.display='none';svg.appendChild(cursor);
 var span=document.createElementNS(ns,'rect');span.setAttribute('class','span');span.setAttribute('y',Y[3]);span.setAttribute('height',Y[2]-Y[3]);span.style.display='none';svg.appendChild(span);
 function L(v){return log?Math.log10(Math.max(v,1e-300)):v;}
 function px(v){return X[2]+(X[3]-X[2])*(v-view.x0)/(view.x1-view.x0);}
 function py(v){return Y[2]+(Y[3]-Y[2])*(L(v)-L(view.y0))/(L(view.y1)-L(view.y0));}
 function at(e){var r=svg.getBoundingClientRect();return (e.clientX-r.left)/r.width*svg.viewBox.baseVal.width;}
 function xOf(p){return view.x0+(p-X[2])/(X[3]-X[2])*(view.x1-view.x0);}
 function ticks(a,b,n){if(!(b>a))return [a];var raw=(b-a)/n,p=Math.pow(10,Math.floor(Math.log10(raw))),s=10*p;
  [1,2,5].some(function(f){if(f*p>=raw){s=f*p;return true;}return false;});var out=[];for(var k=Math.ceil(a/s);k*s<=b+s*1e-9;k++)out.push(k*s);return out;}
 function el(name,attrs,text){var e=document.createElementNS(ns,name);Object.keys(attrs).forEach(function(k){e.setAttribute(k,attrs[k]);});if(text!==undefined)e.textContent=text;return e;}
 function draw(){
  while(axes.firstChild)axes.removeChild(axes.firstChild);
  ticks(view.x0,view.x1,7).forEach(function(t){axes.appendChild(el('line',{'class':'grid',x1:px(t),x2:px(t),y1:Y[2],y2:Y[3]}));
   axes.appendChild(el('text',{'class':'soft','text-anchor':'middle',x:px(t),y:Y[2]+17},num(t)));});
  var yt=[];if(log){for(var e=Math.floor(Math.log10(view.y0));e<=Math.log10(view.y1);e++)[1,2,5].forEach(function(f){var t=f*Math.pow(10,e);if(t>=view.y0&&t<=view.y1)yt.push(t);});}else yt=ticks(view.y0,view.y1,6);
  yt.forEach(function(t){axes.appendChild(el('line',{'class':'grid',x1:X[2],x2:X[3],y1:py(t),y2:py(t)}));
   axes.appendChild(el('text',{'class':'soft','text-anchor':'end',x:X[2]-7,y:py(t)+4},num(t)));});
  lines.forEach(function(s){var d='',pen=false;s.x.forEach(function(x,i){var y=s.y[i];
   if(x===null||y===null||x<view.x0||x>view.x1||(log&&y<=0)){pen=false;return;}d+=(pen?'L':'M')+px(x).toFixed(1)+' '+py(y).toFixed(1);pen=true;});s.el.setAttribute('d',d);});
  bands.forEach(function(b){b.style.display=view.x0===full.x0&&view.x1===full.x1?'':'none';});}
 function zoom(a,b){view.x0=a;view.x1=b;var lo=Infinity,hi=-Infinity;
  lines.forEach(function(s){s.x.forEach(function(x,i){var y=s.y[i];if(x===null||y===null||x<a||x>b||(log&&y<=0))return;lo=Math.min(lo,y);hi=Math.max(hi,y);});});
  if(hi>lo){var r=log?1.05:0;view.y0=log?lo/r:lo-(hi-lo)*.05;view.y1=log?hi*r:hi+(hi-lo)*.05;}draw();}
 var from=null;
 svg.addEventListener('pointerdown',function(e){var p=at(e);if(p>=X[2]&&p<=X[3])from=p;});
 svg.addEventListener('pointermove',function(e){var p=Math.max(X[2],Math.min(X[3],at(e))),x=xOf(p),text=[];
  lines.forEach(function(s){var best=-1;s.x.forEach(function(v,i){if(v===null||s.y[i]===null)return;if(best<0||Math.abs(v-x)<Math.abs(s.x[best]-x))best=i;});
   if(best>=0)text.push(s.name+': '+num(s.y[best])+' at '+num(s.x[best]));});
  cursor.setAttribute('x1',p);cursor.setAttribute('x2',p);cursor.style.display='';
  if(from!==null&&Math.abs(p-from)>4){span.setAttribute('x',Math.min(p,from));span.setAttribute('width',Math.abs(p-from));span.style.display='';}
  if(text.length)show(text.join('\n'),e);});
 svg.addEventListener('pointerup',function(e){span.style.display='none';if(from===null)return;var p=Math.max(X[2],Math.min(X[3],at(e)));
  if(Math.abs(p-from)>8)zoom(xOf(Math.min(p,from)),xOf(Math.max(p,from)));from=null;});
 svg.addEventListener('pointerleave',function(){hide();cursor.style.display='none';span.style.display='none';from=null;});
 svg.addEventListener('dblclick',function(){Object.assign(view,full);draw();});});
document.querySelectorAll('.tabs').forEach(function(tabs){tabs.addEventListener('click',function(e){var b=e.target.closest('button');if(!b)return;
 tabs.querySelectorAll('button').forEach(function(o){o.setAttribute('aria-pressed',o===b);});
 document.querySelectorAll('[data-tab]').forEach(function(f){f.hidden=f.dataset.tab!==b.dataset.show;});});});
document.documentElement.dataset.ready='1';
})();
)js";

}  // namespace denseformer

#endif  // DENSEFORMER_ANALYSIS_REPORT_ASSETS_H_
