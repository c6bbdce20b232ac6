// What an independent program says of the published workloads: the file of its figures.
#ifndef VRAMBROKER_TESTS_PUBLISHED_BOUNDS_H_
#define VRAMBROKER_TESTS_PUBLISHED_BOUNDS_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace vrambroker {

// A sequential workload on one card size: what the rules lose there, and the least that can be.
struct BoundRow {
  std::string workload;
  int64_t capacity = 0;
  bool fits = false;
  double optimum = 0;
  double optimum_ahead = 0;
  std::map<std::string, double> rules;
};

inline std::vector<BoundRow> BoundRows() {
  std::ifstream in(BOUNDS_FILE);
  EXPECT_TRUE(in.good()) << BOUNDS_FILE;
  std::vector<BoundRow> rows;
  const nlohmann::json bounds = nlohmann::json::parse(in);
  for (const auto& [name, entry] : bounds.items()) {
    for (const nlohmann::json& value : entry.at("capacities")) {
      BoundRow row;
      row.workload = name;
      row.capacity = std::stoll(value.at("capacity_bytes").get<std::string>());
      row.fits = value.at("fits").get<bool>();
      if (row.fits) {
        row.optimum = value.at("stall_seconds").get<double>();
        row.optimum_ahead = value.at("ahead_stall_seconds").get<double>();
        row.rules = value.at("rules").get<std::map<std::string, double>>();
      }
      rows.push_back(row);
    }
  }
  return rows;
}

}  // namespace vrambroker

#endif  // VRAMBROKER_TESTS_PUBLISHED_BOUNDS_H_
