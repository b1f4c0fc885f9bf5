#include "apps/cli/lens.h"

namespace pellucid::cli {
namespace {

constexpr std::string_view kHead = R"(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Logit lens</title>
<style>
  :root { color-scheme: dark; }
  body { margin: 0; padding: 28px 32px; background: #0e1020; color: #d8dcec;
         font: 14px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
  h1 { margin: 0 0 2px; font-size: 21px; font-weight: 600; color: #fff; }
  p { margin: 0 0 16px; color: #99a0bd; max-width: 68ch; }
  .prompt { color: #fae046; white-space: pre-wrap; }
  .scroll { overflow: auto; padding: 4px 4px 150px; }
  table { border-collapse: separate; border-spacing: 2px; }
  th { font-weight: 500; color: #99a0bd; padding: 2px 8px; text-align: left; white-space: pre;
       font-size: 12px; position: sticky; left: 0; background: #0e1020; z-index: 1; }
  thead th { position: static; color: #fff; }
  td { position: relative; padding: 3px 9px; border-radius: 4px; white-space: pre; cursor: default;
       font: 12.5px/1.4 ui-monospace, "SF Mono", Menlo, Consolas, monospace; min-width: 62px; }
  td.answer { box-shadow: inset 0 0 0 1.5px rgba(255, 255, 255, .75); }
  .tip { display: none; position: absolute; z-index: 5; top: calc(100% + 4px); left: 0;
         background: #191c33; border: 1px solid #3a4068; border-radius: 8px; padding: 8px 10px; min-width: 190px;
         color: #d8dcec; box-shadow: 0 8px 24px rgba(0, 0, 0, .5); }
  td:nth-last-child(-n+2) .tip { left: auto; right: 0; }
  td:hover .tip { display: block; }
  .tip div { display: flex; justify-content: space-between; gap: 18px; }
  .tip .small { color: #99a0bd; margin-top: 5px; }
  svg text { fill: #99a0bd; font-size: 11px; }
</style>
</head>
<body>
)";

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string css(Rgb colour) {
  return fmt::format("rgb({},{},{})", colour.red, colour.green, colour.blue);
}

std::string cell_html(const LensCell& cell, const LensToken& answer) {
  const LensToken& best = cell.top.front();
  const Rgb colour = probability_colour(best.probability);
  std::string tip;
  for (const LensToken& token : cell.top) {
    tip += fmt::format("<div><span>{}</span><span>{:.1f} %</span></div>",
                       escaped(visible(token.text)), token.probability * 100);
  }
  tip += fmt::format("<div class=\"small\"><span>{}: rank {}</span><span>{:.1f} %</span></div>",
                     escaped(visible(answer.text)), cell.final_rank, cell.final_probability * 100);
  return fmt::format("<td{} style=\"background:{};color:{}\">{}<div class=\"tip\">{}</div></td>",
                     cell.final_rank == 1 ? " class=\"answer\"" : "", css(colour),
                     is_light(colour) ? "#10121f" : "#fff", escaped(visible(best.text)), tip);
}

/// How the answer at the last position becomes probable from layer to layer.
std::string chart_svg(const Lens& lens) {
  constexpr double kWidth = 640, kHeight = 130, kLeft = 40, kTop = 12;
  const double step = kWidth / std::max<size_t>(1, lens.layers.size() - 1);
  std::string points, labels;
  for (size_t i = 0; i < lens.layers.size(); ++i) {
    const double x = kLeft + step * static_cast<double>(i);
    const double p = lens.layers[i].cells.back().final_probability;
    points += fmt::format("{:.1f},{:.1f} ", x, kTop + kHeight * (1 - p));
    if (i == 0 || i + 1 == lens.layers.size() || i % 5 == 0) {
      labels += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>", x,
                            kTop + kHeight + 18, lens.layers[i].label);
    }
  }
  std::string grid;
  for (const int percent : {0, 50, 100}) {
    const double y = kTop + kHeight * (1 - percent / 100.0);
    grid += fmt::format(
        "<line x1=\"{0}\" x2=\"{1}\" y1=\"{2}\" y2=\"{2}\" stroke=\"#2a2f52\"/>"
        "<text x=\"{3}\" y=\"{4}\" text-anchor=\"end\">{5} %</text>",
        kLeft, kLeft + kWidth, y, kLeft - 6, y + 4, percent);
  }
  return fmt::format(
      "<p>Probability of <span class=\"prompt\">{}</span>, the model's answer at the last "
      "position, layer by layer:</p>\n"
      "<svg width=\"{}\" height=\"{}\" role=\"img\">{}{}<polyline points=\"{}\" fill=\"none\" "
      "stroke=\"#fae046\" "
      "stroke-width=\"2.5\" stroke-linejoin=\"round\"/></svg>\n",
      escaped(visible(lens.answers.back().text)), kLeft + kWidth + 20, kTop + kHeight + 26, grid,
      labels, points);
}

}  // namespace

std::string lens_html(const Lens& lens) {
  std::string page(kHead);
  page += fmt::format(
      "<h1>Logit lens of {}</h1>\n<p class=\"prompt\">{}</p>\n"
      "<p>What each layer would say next, at each position, if the model ended there. Bright cells "
      "are sure; framed "
      "cells agree with the whole model. Hover over a cell for its best tokens.</p>\n",
      escaped(lens.model), escaped(lens.prompt));
  page += chart_svg(lens);
  page += "<div class=\"scroll\"><table>\n<thead><tr><th></th>";
  for (const LensToken& token : lens.tokens)
    page += fmt::format("<th>{}</th>", escaped(visible(token.text)));
  page += "</tr></thead>\n<tbody>\n";
  for (auto layer = lens.layers.rbegin(); layer != lens.layers.rend(); ++layer) {
    page += fmt::format("<tr><th title=\"{}\">{}</th>", layer->site, layer->label);
    for (size_t i = 0; i < layer->cells.size(); ++i)
      page += cell_html(layer->cells[i], lens.answers[i]);
    page += "</tr>\n";
  }
  return page + "</tbody></table></div>\n</body>\n</html>\n";
}

}  // namespace pellucid::cli
