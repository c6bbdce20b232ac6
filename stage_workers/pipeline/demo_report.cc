#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "stage_workers/pipeline/demo.h"
#include "stage_workers/pipeline/statistics.h"
#include "stage_workers/worker/command_line.h"

namespace vrambroker::pipeline {
namespace {

using worker::FormatBytes;
using Json = nlohmann::ordered_json;

// Median request seconds that were published of a real card.
struct Published {
  double capacity_gib;
  const char* arm;
  // 0: it did not start.
  double seconds;
};
constexpr Published kPublished[] = {
    {31.4, "streamed", 14.136},
    {31.4, "set_released", 14.168},
    {31.4, "local_rule", 13.737},
    {23.5, "local_rule", 0},
};

const Published* FindPublished(double capacity_gib, const std::string& arm) {
  for (const Published& published : kPublished) {
    if (published.arm == arm && std::abs(published.capacity_gib - capacity_gib) < 0.05) {
      return &published;
    }
  }
  return nullptr;
}

const ArmResult* FindArm(const CardResult& card, const std::string& name) {
  for (const ArmResult& arm : card.arms) {
    if (arm.name == name) return &arm;
  }
  return nullptr;
}

std::string PublishedCells(const Published* published, double time_scale) {
  if (published == nullptr) return absl::StrFormat("%11s %9s", "", "");
  if (published->seconds == 0) return absl::StrFormat("%11s %9s", "no start", "");
  return absl::StrFormat("%11.3f %9.3f", published->seconds, published->seconds / time_scale);
}

std::string Row(const CardResult& card, const ArmResult& arm, double time_scale) {
  const std::string published =
      PublishedCells(FindPublished(card.capacity_gib, arm.name), time_scale);
  if (!arm.ran) {
    return absl::StrFormat("  %-13s %-4s %8s %8s %8s %11s %11s %8s %s\n", arm.name, "no", "", "",
                           "", "", FormatBytes(arm.peak_bytes), "", published);
  }
  const double p50 = Percentile(arm.request_seconds, 50);
  const ArmResult* streamed = FindArm(card, "streamed");
  const bool gains = streamed != nullptr && streamed->ran && streamed != &arm;
  const std::string gain =
      gains ? absl::StrFormat("%+.3f", Percentile(streamed->request_seconds, 50) - p50) : "";
  return absl::StrFormat("  %-13s %-4s %8.3f %8.3f %8.3f %11s %11s %8s %s\n", arm.name, "yes", p50,
                         Percentile(arm.request_seconds, 95), arm.stall_seconds,
                         FormatBytes(arm.bytes_to_device), FormatBytes(arm.peak_bytes), gain,
                         published);
}

std::string AheadRow(const ArmResult& arm) {
  if (!arm.ran) return absl::StrFormat("  %-17s no   %s\n", arm.name, arm.error);
  return absl::StrFormat("  %-17s yes  %8.3f %8.3f %8.3f %11s %11s\n", arm.name,
                         Percentile(arm.request_seconds, 50), Percentile(arm.request_seconds, 95),
                         arm.stall_seconds, FormatBytes(arm.bytes_to_device),
                         FormatBytes(arm.bytes_loaded_ahead));
}

std::string CardTable(const CardResult& card, const DemoResult& result) {
  std::string text = absl::StrFormat("\nCard of %g GiB (emulated: %s, link %s a second)\n",
                                     card.capacity_gib, FormatBytes(card.card_bytes),
                                     FormatBytes(static_cast<int64_t>(card.link_bytes_per_second)));
  absl::StrAppend(&text, absl::StrFormat("  %-13s %-4s %8s %8s %8s %11s %11s %8s %11s %9s\n", "arm",
                                         "ran", "p50 s", "p95 s", "lost s", "moved", "peak",
                                         "gain s", "published s", "scaled s"));
  for (const ArmResult& arm : card.arms) {
    if (!arm.load_ahead) absl::StrAppend(&text, Row(card, arm, result.time_scale));
  }
  for (const ArmResult& arm : card.arms) {
    if (!arm.ran && !arm.load_ahead)
      absl::StrAppend(&text, "  ", arm.name, " did not run: ", arm.error, "\n");
  }
  absl::StrAppend(&text, "  in this order: ", absl::StrJoin(card.order, ", "), "\n");
  return text;
}

// Arms with loading ahead below the same ones without; empty where there are none.
std::string AheadTable(const CardResult& card) {
  std::string rows;
  for (const ArmResult& ahead : card.arms) {
    if (!ahead.load_ahead) continue;
    const std::string without = ahead.name.substr(0, ahead.name.rfind("_ahead"));
    for (const ArmResult* arm : {FindArm(card, without), &ahead}) {
      if (arm == nullptr) continue;
      absl::StrAppend(&rows, AheadRow(*arm));
    }
  }
  if (rows.empty()) return "";
  return absl::StrFormat("\nLoading ahead, card of %g GiB\n  %-17s %-4s %8s %8s %8s %11s %11s\n%s",
                         card.capacity_gib, "arm", "ran", "p50 s", "p95 s", "lost s", "moved",
                         "of it ahead", rows);
}

std::string ClosingLine(const DemoResult& result) {
  int ran = 0;
  int arms = 0;
  for (const CardResult& card : result.cards) {
    for (const ArmResult& arm : card.arms) {
      ++arms;
      ran += arm.ran ? 1 : 0;
    }
  }
  return absl::StrFormat(
      "\nResults of all %d requests (sha256) are %s across the %d runs of an arm on a card that "
      "ended, of %d.\n",
      result.warm_ups + result.requests, ResultsAgree(result) ? "bit-identical" : "NOT THE SAME",
      ran, arms);
}

Json ArmJson(const ArmResult& arm) {
  return {{"name", arm.name},
          {"ran", arm.ran},
          {"error", arm.error},
          {"requests", arm.request_seconds.size()},
          {"p50_seconds", Percentile(arm.request_seconds, 50)},
          {"p95_seconds", Percentile(arm.request_seconds, 95)},
          {"stall_seconds", arm.stall_seconds},
          {"bytes_to_device", arm.bytes_to_device},
          {"bytes_loaded_ahead", arm.bytes_loaded_ahead},
          {"load_ahead", arm.load_ahead},
          {"peak_bytes", arm.peak_bytes},
          {"result_sha256", arm.ResultSha256()},
          {"request_seconds", arm.request_seconds},
          {"request_sha256", arm.results}};
}

}  // namespace

bool ResultsAgree(const DemoResult& result) {
  const std::vector<std::string>* first = nullptr;
  for (const CardResult& card : result.cards) {
    for (const ArmResult& arm : card.arms) {
      if (!arm.ran) continue;
      if (first == nullptr) first = &arm.results;
      if (arm.results != *first) return false;
    }
  }
  return true;
}

std::vector<std::string> DemoFaults(const DemoResult& result) {
  std::vector<std::string> faults;
  for (const CardResult& card : result.cards) {
    for (const ArmResult& arm : card.arms) {
      if (arm.must_run && !arm.ran) {
        faults.push_back(absl::StrFormat("%s did not run on the card of %g GiB: %s", arm.name,
                                         card.capacity_gib, arm.error));
      }
    }
  }
  if (!ResultsAgree(result)) faults.push_back("the results of requests differ between arms");
  return faults;
}

std::vector<std::string> ExpectationFaults(const DemoResult& result) {
  std::vector<std::string> faults;
  const auto by_size = [](const CardResult& a, const CardResult& b) {
    return a.capacity_gib < b.capacity_gib;
  };
  const auto [smallest, largest] =
      std::minmax_element(result.cards.begin(), result.cards.end(), by_size);
  for (const CardResult& card : result.cards) {
    const ArmResult* streamed = FindArm(card, "streamed");
    const ArmResult* broker = FindArm(card, "broker");
    const ArmResult* local_rule = FindArm(card, "local_rule");
    if (streamed == nullptr || broker == nullptr || local_rule == nullptr) {
      faults.push_back("streamed, broker and local_rule are needed to check what is expected");
      return faults;
    }
    if (broker->bytes_to_device >= streamed->bytes_to_device) {
      faults.push_back(absl::StrFormat(
          "on the card of %g GiB the broker moved %d bytes, streaming %d: not fewer",
          card.capacity_gib, broker->bytes_to_device, streamed->bytes_to_device));
    }
    if (&card == &*largest && !local_rule->ran) {
      faults.push_back(
          absl::StrCat("the local rule did not run on the largest card: ", local_rule->error));
    }
    const bool out_of_memory = local_rule->error.find("RESOURCE_EXHAUSTED") != std::string::npos;
    if (&card == &*smallest && smallest != largest && (local_rule->ran || !out_of_memory)) {
      faults.push_back(absl::StrCat("the local rule did not run out of memory on the smallest card",
                                    local_rule->ran ? "" : ": ", local_rule->error));
    }
  }
  return faults;
}

std::string DemoTable(const DemoResult& result) {
  std::string text = absl::StrFormat(
      "qwen-image-2.1: text encoder, DiT and VAE in three processes on one card. Sizes are divided "
      "by %d, times by %g.\n%d requests count, %d before them do%s not. lost: time of a request in "
      "which compute waited for copies (mean).\nmoved: bytes copied to the card by the requests "
      "that count. peak: highest use of the card. gain: over streamed.\npublished: median of a "
      "real card in seconds, and divided by %g.\n",
      result.bytes_scale, result.time_scale, result.requests, result.warm_ups,
      result.warm_ups == 1 ? "es" : "", result.time_scale);
  for (const Arm& arm : AllArms(result.bytes_scale)) {
    if (!arm.load_ahead)
      absl::StrAppend(&text, absl::StrFormat("  %-13s %s\n", arm.name, arm.meaning));
  }
  for (const CardResult& card : result.cards) absl::StrAppend(&text, CardTable(card, result));
  std::string ahead;
  for (const CardResult& card : result.cards) absl::StrAppend(&ahead, AheadTable(card));
  absl::StrAppend(&text, ahead, ClosingLine(result));
  return text;
}

std::string DemoJson(const DemoResult& result) {
  Json cards = Json::array();
  for (const CardResult& card : result.cards) {
    Json arms = Json::array();
    for (const ArmResult& arm : card.arms) arms.push_back(ArmJson(arm));
    cards.push_back({{"capacity_gib", card.capacity_gib},
                     {"arms", arms},
                     {"card_bytes", card.card_bytes},
                     {"link_bytes_per_second", card.link_bytes_per_second},
                     {"order", card.order}});
  }
  Json published = Json::array();
  for (const Published& one : kPublished) {
    published.push_back({{"capacity_gib", one.capacity_gib},
                         {"arm", one.arm},
                         {"ran", one.seconds > 0},
                         {"p50_seconds", one.seconds}});
  }
  const Json json = {{"scale", {{"bytes", result.bytes_scale}, {"time", result.time_scale}}},
                     {"cards", cards},
                     {"warm_ups", result.warm_ups},
                     {"bit_identical", ResultsAgree(result)},
                     {"published_unscaled", published}};
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace vrambroker::pipeline
