// The files of the page, as they were when the program was built.
#ifndef VRAMBROKER_BROKER_PAGE_ASSETS_H_
#define VRAMBROKER_BROKER_PAGE_ASSETS_H_

#include "absl/strings/string_view.h"

namespace vrambroker::page {

struct Asset {
  // "/NAME".
  absl::string_view path;
  absl::string_view content;
};

// Null: there is none of that path.
const Asset* FindAsset(absl::string_view path);

}  // namespace vrambroker::page

#endif  // VRAMBROKER_BROKER_PAGE_ASSETS_H_
