// The card over time as a drawing that stands alone: for each component the layers of its uses,
// what it keeps between them and what is loaded ahead, with windows and activations, stacked up to
// the card's size. Readable on light and dark grounds. Pure.
#pragma once

#include <string>

#include "broker/sim/simulate.h"

namespace vrambroker::ctl {

// `result` must have been recorded. `title` goes above. Where there are more changes than a drawing
// shows, those too close to tell apart are left out.
std::string PlotSvg(const sim::Workload& workload, const sim::Result& result,
                    const std::string& title);

// `text` with what XML reserves spelt out.
std::string XmlEscaped(const std::string& text);

}  // namespace vrambroker::ctl
