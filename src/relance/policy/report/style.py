"""How the page looks: one style sheet for screens light and dark, for phones, and for paper."""

from __future__ import annotations

import base64
import hashlib

STYLE = """
:root {
  color-scheme: light dark;
  --paper: #ffffff; --panel: #f5f7f9; --ink: #1b2530; --soft: #51606f; --rule: #d8dee5;
  --mark: #24609b; --edge: #66788a; --bad: #a3261d; --bad-panel: #fcefed; --good: #1d6b3c; --warn: #7a5200;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --paper: #12181f; --panel: #1a222b; --ink: #e4eaf0; --soft: #a3b1bf; --rule: #323e4a;
    --mark: #6aa9e6; --edge: #8496a8; --bad: #ff9a8f; --bad-panel: #331c1b; --good: #7fd29d; --warn: #e6bd6a;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0 auto; padding: 2rem 1.5rem 3rem; max-width: 74rem; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
  overflow-wrap: anywhere; font-variant-numeric: tabular-nums;
}
h1, h2, h3, p, figure, dl, dd, table { margin: 0; }
h1 { font-size: 1.6rem; line-height: 1.25; font-weight: 650; margin-top: .3rem; }
h2 {
  font-size: 1.15rem; font-weight: 650; margin: 2.5rem 0 .9rem; padding-top: .9rem;
  border-top: 1px solid var(--rule);
}
h3 { font-size: 1rem; font-weight: 650; }
h3.later { margin: 1.75rem 0 .4rem; }
a { color: var(--mark); }
.kicker, .hint, figcaption, caption, footer { color: var(--soft); font-size: .875rem; }
.lead { font-size: 1.1rem; margin-top: .5rem; }
.state { font-weight: 650; }
.state.failed, .state.refused, .outcome.failed, .error { color: var(--bad); }
.state.done, .outcome.done { color: var(--good); }
.state.running, .outcome.skipped { color: var(--warn); }
.notice {
  margin-top: 1rem; padding: .75rem 1rem; background: var(--bad-panel); border-left: 4px solid var(--bad);
  white-space: pre-wrap;
}
.tiles {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .75rem;
  margin-top: 1.5rem;
}
.tiles div {
  display: flex; flex-direction: column-reverse; justify-content: flex-end; padding: .8rem 1rem;
  background: var(--panel); border-radius: 6px;
}
.tiles dt { color: var(--soft); font-size: .875rem; }
.tiles dd { font-size: 1.35rem; font-weight: 650; line-height: 1.3; }
.about { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: .25rem 1.25rem; }
.about dt { color: var(--soft); }
.columns { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 0 3rem; align-items: start; }
table { width: 100%; border-collapse: collapse; }
caption { text-align: left; padding-bottom: .4rem; }
th, td {
  text-align: left; vertical-align: top; padding: .35rem .9rem .35rem 0; border-bottom: 1px solid var(--rule);
}
th { font-weight: 600; }
thead th { color: var(--soft); font-size: .875rem; overflow-wrap: normal; }
td:last-child, th:last-child { padding-right: 0; }
td.figure, th.figure { text-align: right; }
td.figure, .outcome, .kind { white-space: nowrap; }
tbody th { font-weight: 400; }
.name { font-weight: 600; }
.why { color: var(--soft); font-size: .875rem; }
.error { white-space: pre-wrap; font-size: .875rem; }
.plots {
  display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 2.25rem 3rem; align-items: start;
}
figcaption { margin: .1rem 0 .5rem; }
figure .hint { margin-top: .35rem; }
details { margin-top: .35rem; font-size: .875rem; }
summary { color: var(--soft); cursor: pointer; }
details table { margin-top: .35rem; }
svg { display: block; overflow: hidden; }
.key { white-space: nowrap; margin-right: .75em; }
svg.sample { display: inline-block; vertical-align: -1px; }
svg text { font-size: 11.5px; fill: var(--ink); }
svg text.name { font-weight: 400; font-size: 12.5px; }
svg text.name, svg text.value { stroke: var(--paper); stroke-width: 3px; paint-order: stroke; }
svg text.value { fill: var(--soft); }
svg text.tick { fill: var(--soft); font-size: 10.5px; }
svg .rule { stroke: var(--rule); }
svg .now { stroke: var(--edge); stroke-dasharray: 3 3; }
svg .track { stroke: var(--edge); stroke-width: 2px; }
svg .before { fill: var(--paper); stroke: var(--edge); stroke-width: 1.5px; }
svg .after { fill: var(--mark); }
svg .due { fill: var(--bad); stroke: var(--bad); stroke-width: 3px; }
footer { margin-top: 3rem; }
@media screen and (max-width: 760px) {
  body { padding: 1.25rem 1rem 2rem; }
  h1 { font-size: 1.3rem; }
  .columns, .plots { grid-template-columns: minmax(0, 1fr); }
  .tiles { grid-template-columns: repeat(2, minmax(0, 1fr)); }
  .wide, .wide tbody, .wide tr, .wide td, .wide th { display: block; border: 0; padding: 0; }
  .wide thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  .wide caption { display: block; }
  .wide tr { padding: .6rem 0; border-bottom: 1px solid var(--rule); }
  .wide td { display: inline-block; margin-right: .9rem; text-align: left; max-width: 100%; }
  .wide td.error { display: block; }
  .wide td[data-label]::before { content: attr(data-label) ": "; color: var(--soft); }
  .wide td:empty { display: none; }
  th, td { padding-right: .6rem; }
  details td.figure { white-space: normal; }
}
@media print {
  @page { margin: 14mm; }
  :root { color-scheme: light; }
  body { padding: 0; max-width: none; font-size: 10pt; }
  h2, h3 { break-after: avoid; }
  figure, tr, .tiles, .about, .notice, .wide:has(+ h3) { break-inside: avoid; }
  .columns, .plots { gap: 1.5rem 2rem; }
  .tiles { grid-template-columns: repeat(6, minmax(0, 1fr)); gap: .5rem; }
  .tiles div { border: 1px solid var(--rule); padding: .5rem .6rem; }
  .tiles dd { font-size: 1.05rem; }
  .tiles dt { font-size: 7.5pt; }
  th, td { padding-top: .2rem; padding-bottom: .2rem; }
  .wide { font-size: 8.5pt; }
  .wide .why, .wide .error, thead th, .wide thead th { font-size: 8pt; }
  thead { display: table-header-group; }
  details { display: none; }
}
"""

STYLE_SOURCE = "'sha256-" + base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode() + "'"
"""The one style sheet that the page's Content-Security-Policy lets in."""
