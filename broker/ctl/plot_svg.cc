#include "broker/ctl/plot_svg.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace vrambroker::ctl {
namespace {

constexpr double kGiB = 1073741824.0;
constexpr double kWidth = 1000, kLeft = 64, kRight = 16, kTop = 40, kHeight = 360;
constexpr double kLegendLine = 20;
constexpr int kColors = 8;

// Told apart by people who see colours differently as well; lighter on a dark ground.
constexpr char kStyle[] =
    "<style>\n"
    "text{font:12px system-ui,sans-serif;fill:#1f2328}\n"
    ".title{font-size:14px;font-weight:600}\n"
    ".ground{fill:#ffffff}.axis{stroke:#59636e;stroke-width:1;fill:none}\n"
    ".grid{stroke:#d1d9e0;stroke-width:1}.limit{stroke:#cf222e;stroke-width:1.5;"
    "stroke-dasharray:6 3}\n"
    ".fixed{fill:#8c959f}\n"
    ".c0{color:#0969da}.c1{color:#bc4c00}.c2{color:#1a7f37}.c3{color:#8250df}\n"
    ".c4{color:#bf8700}.c5{color:#bf3989}.c6{color:#1b7c83}.c7{color:#57606a}\n"
    ".use{fill:currentColor}.kept{fill:currentColor;fill-opacity:.4}\n"
    ".need{fill:currentColor;fill-opacity:.7;stroke:none}\n"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.ground{fill:#0d1117}\n"
    ".axis{stroke:#9198a1}.grid{stroke:#3d444d}.limit{stroke:#ff7b72}.fixed{fill:#656c76}\n"
    ".c0{color:#58a6ff}.c1{color:#f0883e}.c2{color:#3fb950}.c3{color:#bc8cff}\n"
    ".c4{color:#d29922}.c5{color:#f778ba}.c6{color:#39c5cf}.c7{color:#b1bac4}}\n"
    "</style>\n";

// Stripes over what is being loaded ahead, dots over window and activation.
constexpr char kPatterns[] =
    "<pattern id=\"load\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" "
    "patternTransform=\"rotate(45)\"><rect class=\"ground\" width=\"3\" height=\"6\" "
    "fill-opacity=\".75\"/></pattern>\n"
    "<pattern id=\"need\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\">"
    "<circle class=\"ground\" cx=\"2.5\" cy=\"2.5\" r=\"1.3\" fill-opacity=\".8\"/></pattern>\n";

// 1, 2 or 5 times a power of ten, so that there are at most `most` steps up to `end`.
double Step(double end, int most) {
  double step = std::pow(10, std::floor(std::log10(end / most)));
  for (const double factor : {1.0, 2.0, 5.0, 10.0}) {
    if (end / (step * factor) <= most) return step * factor;
  }
  return step * 10;
}

class Plot {
 public:
  Plot(const sim::Workload& workload, const sim::Result& result)
      : workload_(workload),
        result_(result),
        seconds_(std::max(result.seconds, 1e-6)),
        capacity_(static_cast<double>(workload.device.capacity_bytes)) {}

  std::string Draw(const std::string& title) {
    const double height = kTop + kHeight + 52 + kLegendLine * (LegendRows() + 1);
    absl::StrAppendFormat(&out_,
                          "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" "
                          "width=\"%g\" height=\"%g\" role=\"img\">\n<title>%s</title>\n",
                          kWidth, height, kWidth, height, XmlEscaped(title));
    absl::StrAppend(&out_, kStyle, "<defs>\n", kPatterns, "</defs>\n");
    absl::StrAppendFormat(&out_, "<rect class=\"ground\" width=\"%g\" height=\"%g\"/>\n", kWidth,
                          height);
    absl::StrAppendFormat(&out_, "<text class=\"title\" x=\"%g\" y=\"22\">%s</text>\n", kLeft,
                          XmlEscaped(title));
    Grid();
    Card();
    Axes();
    Legend(kTop + kHeight + 58);
    absl::StrAppend(&out_, "</svg>\n");
    return std::move(out_);
  }

 private:
  double X(double time) const { return kLeft + time / seconds_ * (kWidth - kLeft - kRight); }
  double Y(double bytes) const { return kTop + kHeight * (1 - bytes / capacity_); }
  int LegendRows() const { return static_cast<int>((workload_.components.size() + 3) / 4); }
  static int Color(size_t component) { return static_cast<int>(component % kColors); }

  void Grid() {
    const double gib = capacity_ / kGiB;
    const double step = Step(gib, 8);
    for (double at = 0; at <= gib * 1.0001; at += step) {
      const double y = Y(at * kGiB);
      absl::StrAppendFormat(&out_,
                            "<line class=\"grid\" x1=\"%g\" x2=\"%g\" y1=\"%.1f\" y2=\"%.1f\"/>\n",
                            kLeft, kWidth - kRight, y, y);
      absl::StrAppendFormat(&out_, "<text x=\"%g\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n",
                            kLeft - 6, y + 4, at);
    }
    const double tick = Step(seconds_, 10);
    for (double at = 0; at <= seconds_ * 1.0001; at += tick) {
      absl::StrAppendFormat(&out_, "<text x=\"%.1f\" y=\"%g\" text-anchor=\"middle\">%g</text>\n",
                            X(at), kTop + kHeight + 18, at);
    }
  }

  void Axes() {
    absl::StrAppendFormat(&out_, "<path class=\"axis\" d=\"M%g %g V%g H%g\"/>\n", kLeft, kTop,
                          kTop + kHeight, kWidth - kRight);
    const double limit = capacity_ - static_cast<double>(workload_.device.reserve_bytes);
    absl::StrAppendFormat(&out_,
                          "<line class=\"limit\" x1=\"%g\" x2=\"%g\" y1=\"%.1f\" y2=\"%.1f\"/>\n",
                          kLeft, kWidth - kRight, Y(limit), Y(limit));
    absl::StrAppendFormat(&out_, "<text x=\"%g\" y=\"%g\" text-anchor=\"middle\">seconds</text>\n",
                          (kLeft + kWidth - kRight) / 2, kTop + kHeight + 36);
    absl::StrAppendFormat(
        &out_,
        "<text transform=\"translate(16 %g) rotate(-90)\" text-anchor=\"middle\">GiB on the "
        "card</text>\n",
        kTop + kHeight / 2);
  }

  void Bar(const std::string& style, double from, double to, double low, double high) {
    if (high <= low || to <= from) return;
    absl::StrAppendFormat(&out_,
                          "<rect %s x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\"/>\n",
                          style, from, Y(high), to - from, Y(low) - Y(high));
  }

  double Fixed() const {
    double bytes = 0;
    for (const sim::Component& c : workload_.components)
      bytes += static_cast<double>(c.fixed_bytes);
    return bytes;
  }

  // Changes closer than this many pixels are one.
  static constexpr double kFinest = 0.2;

  // From the bottom: fixed bytes, then component by component what stands for the most of it.
  void Card() {
    absl::StrAppend(&out_, "<g shape-rendering=\"crispEdges\">\n");
    Bar("class=\"fixed\"", X(0), X(seconds_), 0, Fixed());
    for (size_t c = 0; c < workload_.components.size(); ++c) {
      absl::StrAppendFormat(&out_, "<g class=\"c%d\">\n", Color(c));
      size_t i = 0;
      while (i < result_.samples.size()) {
        const double from = X(result_.samples[i].time);
        // Of those too close to tell apart the last one lasts.
        size_t shown = i, next = i + 1;
        for (; next < result_.samples.size(); ++next) {
          if (X(result_.samples[next].time) - from < kFinest) {
            shown = next;
          } else if (!Same(shown, next, c)) {
            break;
          }
        }
        const double to =
            next < result_.samples.size() ? X(result_.samples[next].time) : X(seconds_);
        OneBar(result_.samples[shown], c, from, to);
        i = next;
      }
      absl::StrAppend(&out_, "</g>\n");
    }
    absl::StrAppend(&out_, "</g>\n");
  }

  // Whether the component and all that is stacked below it look alike in both.
  bool Same(size_t a, size_t b, size_t component) const {
    const auto& one = result_.samples[a].components;
    const auto& other = result_.samples[b].components;
    return std::equal(one.begin(), one.begin() + static_cast<std::ptrdiff_t>(component) + 1,
                      other.begin());
  }

  void OneBar(const sim::Sample& sample, size_t component, double from, double to) {
    double low = Fixed();
    for (size_t c = 0; c < component; ++c) {
      low += static_cast<double>(sample.components[c].layers + sample.components[c].needs);
    }
    const sim::Sample::Component& it = sample.components[component];
    const double layers = low + static_cast<double>(it.layers);
    const double all = layers + static_cast<double>(it.needs);
    Bar(it.in_use ? "class=\"use\"" : "class=\"kept\"", from, to, low, layers);
    if (it.loading) Bar("fill=\"url(#load)\"", from, to, low, layers);
    Bar("class=\"use\"", from, to, layers, all);
    Bar("fill=\"url(#need)\"", from, to, layers, all);
  }

  void Swatch(double x, double y, const std::string& styles, const std::string& text,
              const std::string& pattern = "") {
    absl::StrAppendFormat(&out_, "<rect %s x=\"%g\" y=\"%g\" width=\"14\" height=\"12\"/>\n",
                          styles, x, y - 10);
    if (!pattern.empty()) {
      absl::StrAppendFormat(
          &out_, "<rect fill=\"url(#%s)\" x=\"%g\" y=\"%g\" width=\"14\" height=\"12\"/>\n",
          pattern, x, y - 10);
    }
    absl::StrAppendFormat(&out_, "<text x=\"%g\" y=\"%g\">%s</text>\n", x + 20, y,
                          XmlEscaped(text));
  }

  void Legend(double y) {
    const double column = (kWidth - kLeft - kRight) / 4;
    for (size_t c = 0; c < workload_.components.size(); ++c) {
      if (c > 0 && c % 4 == 0) y += kLegendLine;
      const double x = kLeft + column * static_cast<double>(c % 4);
      absl::StrAppendFormat(&out_, "<g class=\"c%d\">", Color(c));
      const std::string& name = workload_.components[c].name;
      Swatch(x, y, "class=\"use\"", name.size() > 30 ? name.substr(0, 27) + "..." : name);
      absl::StrAppend(&out_, "</g>\n");
    }
    y += kLegendLine;
    const double part = (kWidth - kLeft - kRight) / 6;
    absl::StrAppend(&out_, "<g class=\"c7\">\n");
    Swatch(kLeft, y, "class=\"use\"", "layers in use");
    Swatch(kLeft + part, y, "class=\"use\"", "window, activation", "need");
    Swatch(kLeft + 2 * part, y, "class=\"kept\"", "kept between uses");
    Swatch(kLeft + 3 * part, y, "class=\"kept\"", "being loaded ahead", "load");
    Swatch(kLeft + 4 * part, y, "class=\"fixed\"", "fixed bytes");
    absl::StrAppendFormat(&out_,
                          "<line class=\"limit\" x1=\"%g\" x2=\"%g\" y1=\"%g\" y2=\"%g\"/>"
                          "<text x=\"%g\" y=\"%g\">card less reserve</text>\n</g>\n",
                          kLeft + 5 * part, kLeft + 5 * part + 16, y - 4, y - 4,
                          kLeft + 5 * part + 20, y);
  }

  const sim::Workload& workload_;
  const sim::Result& result_;
  double seconds_;
  double capacity_;
  std::string out_;
};

}  // namespace

std::string XmlEscaped(const std::string& text) {
  return absl::StrReplaceAll(text,
                             {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

std::string PlotSvg(const sim::Workload& workload, const sim::Result& result,
                    const std::string& title) {
  return Plot(workload, result).Draw(title);
}

}  // namespace vrambroker::ctl
