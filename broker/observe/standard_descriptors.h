// What a broker does before anything else: as its stage workers do.
#pragma once

#include "stage_workers/card/standard_descriptors.h"

namespace vrambroker::observe {

using card::OpenStandardDescriptors;

}  // namespace vrambroker::observe
