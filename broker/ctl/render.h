// What a broker says as text for people: tables, sizes, decisions. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "vrambroker/v1/admin.pb.h"

namespace vrambroker::ctl {

// Most columns of a cell in a table, but for those of the last column.
inline constexpr size_t kMaxCellColumns = 48;

// Rows of cells in columns that are as wide as their widest cell, two spaces apart; the first row
// is the head. Columns whose name begins with '>' are set to the right. Cells are shown as
// printable ASCII; longer ones than kMaxCellColumns, but those of the last column, are shortened.
std::string RenderTable(const std::vector<std::vector<std::string>>& rows);

// "1.50 GiB", "216.2 MiB", "512 B"; below 0 with a sign.
std::string RenderBytes(int64_t bytes);

// "1 run", "2 runs".
std::string Counted(int64_t count, const char* one, const char* more);

// "attached", "lost", "gone".
std::string SessionStateWord(v1::SessionState state);
// What is unusual about a session, in words. Empty: nothing.
std::string SessionNotes(const v1::SessionPicture& session);
// One line for each decision, oldest first.
std::string RenderDecisions(const v1::ListDecisionsResponse& decisions);

}  // namespace vrambroker::ctl
