"""The look of report.html: system fonts, one column on a phone, the reader's choice of light or dark."""

CSS = """
:root{--page:#f6f7f9;--card:#fff;--ink:#1b1f24;--soft:#5d6673;--rule:#dfe3e8;--s0:#2166c4;--s1:#c8590a;--good:#1a7f37;
--bad:#c02626;--halt:#8a6100;--calm:#5d6673}
@media(prefers-color-scheme:dark){:root{--page:#111418;--card:#1a1f25;--ink:#e6e9ed;--soft:#98a2ae;--rule:#303740;
--s0:#6ea8ff;--s1:#ffa05c;--good:#4cc06a;--bad:#ff7b72;--halt:#e0b04a;--calm:#98a2ae}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:1080px;margin:0 auto;padding:24px 16px 48px}
header{display:flex;flex-wrap:wrap;align-items:center;gap:4px 12px}
header p{flex-basis:100%;margin:0 0 16px;color:var(--soft)}
h1{margin:0;font-size:26px;line-height:1.25;overflow-wrap:anywhere}
h2{margin:28px 0 10px;font-size:17px}
.badge{padding:2px 12px;border-radius:99px;font-weight:600;font-size:13px;color:var(--page);background:var(--calm)}
.badge.succeeded{background:var(--good)}.badge.failed{background:var(--bad)}.badge.stopped{background:var(--halt)}
.badge.unknown{background:var(--bad)}
dl{display:grid;gap:10px;margin:0}
dl.results{grid-template-columns:repeat(4,1fr)}
@media(max-width:640px){dl.results{grid-template-columns:repeat(2,1fr)}}
dl.setup{grid-template-columns:repeat(auto-fit,minmax(280px,1fr));gap:0 36px;background:var(--card);
border:1px solid var(--rule);border-radius:10px;padding:6px 16px}
dl.results div{background:var(--card);border:1px solid var(--rule);border-radius:10px;padding:10px 14px}
dl.setup div{display:flex;gap:12px;justify-content:space-between;padding:6px 0;font-size:14px}
dt{color:var(--soft);font-size:13px}
dd{margin:0;overflow-wrap:anywhere}
dl.results dd{font-size:21px;font-weight:600;font-variant-numeric:tabular-nums}
dl.setup dd{text-align:right}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(400px,100%),1fr));gap:14px;margin-top:14px}
figure{margin:0;background:var(--card);border:1px solid var(--rule);border-radius:10px;padding:12px 14px}
figcaption{font-weight:600}
.legend{min-height:21px;font-size:13px;color:var(--soft)}
.legend span{margin-right:14px}
.legend span:before{content:"";display:inline-block;width:14px;height:3px;margin-right:6px;vertical-align:4px;
background:currentColor}
.legend .s0,.dot.s0{color:var(--s0)}.legend .s1,.dot.s1{color:var(--s1)}
.none{color:var(--soft);font-size:14px}
svg{display:block;width:100%;height:auto}
text{font:12px system-ui,sans-serif;fill:var(--soft);font-variant-numeric:tabular-nums}
.grid{stroke:var(--rule);fill:none}.axis{stroke:var(--soft);fill:none}
.line{fill:none;stroke-width:1.6;stroke-linejoin:round}.line.s0{stroke:var(--s0)}.line.s1{stroke:var(--s1)}
.dot{fill:currentColor}
.e-start,.e-resume,.e-other{color:var(--s0)}.e-done{color:var(--good)}.e-checkpoint{color:var(--calm)}
.e-warning,.e-stopped{color:var(--halt)}.e-failure{color:var(--bad)}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:14px}
td{padding:5px 14px 5px 0;border-top:1px solid var(--rule);vertical-align:top;overflow-wrap:anywhere}
td:nth-child(-n+2){white-space:nowrap;overflow-wrap:normal}
td:first-child{color:var(--soft);font-variant-numeric:tabular-nums}
td:nth-child(2){font-weight:600}
.failure{background:var(--card);border:1px solid var(--bad);border-left-width:5px;border-radius:10px;padding:12px 18px;
margin-bottom:16px}
.failure h2{margin:0;color:var(--bad)}.failure p{margin:6px 0;overflow-wrap:anywhere}
pre{margin:10px 0 0;padding:12px;background:var(--page);border-radius:8px;overflow-x:auto;
font:12.5px/1.45 ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace}
"""
