// The memory picture as lines for people. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "broker/ctl/styled.h"
#include "vrambroker/v1/admin.pb.h"

namespace vrambroker::ctl {

// How many of `cells` each of these parts takes, so that all are taken in proportion; any part
// above 0 takes one at least, while there are as many cells. Parts below 0 count as 0. All 0: none
// are taken.
std::vector<int> BarCells(const std::vector<int64_t>& parts, int cells);

// "[####====....]", all classes of the ledger in `columns` (at least 3).
Line LedgerBar(const v1::DevicePicture& device, size_t columns);
// A device's name and size, its bar, and what its bar means, with the bytes of each class: within
// `columns`, but not narrower than 40.
std::vector<Line> LedgerLines(const v1::DevicePicture& device, size_t columns);
// Who holds what on it; those in kAlarm that have not released what was asked back by its deadline.
std::vector<Line> ComponentLines(const v1::DevicePicture& device);
// Which uses wait, and what holds each up; those that wait too long in kAlarm and in words. Empty:
// none waits.
std::vector<Line> WaitingLines(const v1::Picture& picture);
// The worker processes. Empty: none is known.
std::vector<Line> SessionLines(const v1::Picture& picture);
// Host memory that they pin, of the machine and of each domain. Empty: nobody wishes to pin any.
std::vector<Line> HostMemoryLines(const v1::Picture& picture);
// What concerns the whole broker: that it drains, that it recovers. Empty: nothing does.
std::vector<Line> NoticeLines(const v1::Picture& picture);

// All of the above. Bars are `columns` wide; text is not cut.
std::vector<Line> PictureLines(const v1::Picture& picture, size_t columns);

}  // namespace vrambroker::ctl
