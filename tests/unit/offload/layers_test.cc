#include "stage_workers/offload/layers.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/offload/offload_test_util.h"

namespace vrambroker::offload {
namespace {

using ::testing::HasSubstr;

TEST(Layers, GroupsTensorsByName) {
  TestFolder folder;
  absl::StatusOr<LayerMap> map =
      GroupLayers(MakeFile(folder.File("w"), {{"embed.weight", 64},
                                              {"enc.visual.blocks.0.attn.weight", 128},
                                              {"enc.visual.blocks.0.mlp.0.weight", 64},
                                              {"enc.visual.blocks.1.attn.weight", 192},
                                              {"layers.1.w", 64},
                                              {"layers.0.w", 64},
                                              {"time_embed.0.weight", 64},
                                              {"time_embed.2.weight", 64},
                                              {"single.0.weight", 64},
                                              {"0.weight", 64},
                                              {"conv.01.weight", 64},
                                              {"ends.in.7", 64}}),
                  {});
  ASSERT_TRUE(map.ok()) << map.status();
  ASSERT_EQ(map->lists.size(), 2u);
  EXPECT_EQ(map->lists[0].name, "enc.visual.blocks");
  EXPECT_EQ(map->lists[0].count, 2);
  EXPECT_EQ(map->lists[1].name, "layers");
  ASSERT_EQ(map->layers.size(), 4u);
  EXPECT_EQ(map->layers[0].tensors.bytes, 192);
  // Tensors that follow each other are one piece.
  EXPECT_EQ(map->layers[0].tensors.pieces.size(), 1u);
  EXPECT_EQ(map->layers[2].list, "layers");
  EXPECT_EQ(map->layers[2].index, 0);
  EXPECT_EQ(map->largest_layer_bytes, 192);
  EXPECT_EQ(map->layer_bytes_total, 192 + 192 + 64 + 64);
  // Lists with gaps or of one block, and names without an index, are fixed.
  EXPECT_EQ(map->fixed.bytes, 7 * 64);
}

TEST(Layers, AlignsTensorsOnTheDevice) {
  TestFolder folder;
  std::shared_ptr<SafetensorsFile> file =
      MakeFile(folder.File("w"), {{"b.0.x", 10}, {"b.0.y", 100}, {"b.1.x", 1}});
  absl::StatusOr<LayerMap> map = GroupLayers(file, {});
  ASSERT_TRUE(map.ok()) << map.status();
  const TensorGroup& group = map->layers[0].tensors;
  EXPECT_EQ(group.bytes, 64 + 128);
  ASSERT_EQ(group.pieces.size(), 4u);
  EXPECT_EQ(group.pieces[1].source, nullptr);
  EXPECT_EQ(group.pieces[1].bytes, 54);
  EXPECT_EQ(group.pieces[2].device_offset, 64);
  EXPECT_EQ(group.pieces[2].source, file->Data(file->header().tensors[1]));
  EXPECT_EQ(map->layers[1].tensors.bytes, 64);
}

TEST(Layers, TakesTheListsAskedForInTheirOrder) {
  TestFolder folder;
  std::shared_ptr<SafetensorsFile> file =
      MakeFile(folder.File("w"),
               {{"a.0.w", 64}, {"a.1.w", 64}, {"b.0.w", 64}, {"c.0.w", 64}, {"c.2.w", 64}});
  const std::vector<std::string> ba = {"b", "a"};
  absl::StatusOr<LayerMap> map = GroupLayers(file, ba);
  ASSERT_TRUE(map.ok()) << map.status();
  EXPECT_EQ(map->lists[0].name, "b");
  EXPECT_EQ(map->layers[1].list, "a");
  EXPECT_EQ(map->fixed.bytes, 128);
  const auto message = [&](const std::vector<std::string>& lists) {
    const absl::Status status = GroupLayers(file, lists).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(message({"c"}), HasSubstr("index 1 is missing"));
  EXPECT_THAT(message({"d"}), HasSubstr("\"d\""));
  EXPECT_THAT(message({"a", "a"}), HasSubstr("twice"));
}

TEST(Layers, RefusesTooManyAndEmptyLayers) {
  TestFolder folder;
  std::vector<TestTensor> many;
  for (const char* list : {"a", "b", "c"}) {
    for (int i = 0; i < 1400; ++i) many.push_back({absl::StrCat(list, ".", i, ".w"), 1});
  }
  EXPECT_THAT(std::string(GroupLayers(MakeFile(folder.File("many"), many), {}).status().message()),
              HasSubstr("more than 4096"));
  EXPECT_THAT(std::string(GroupLayers(MakeFile(folder.File("e"), {{"a.0.w", 8}, {"a.1.w", 0}}), {})
                              .status()
                              .message()),
              HasSubstr("a.1"));
}

}  // namespace
}  // namespace vrambroker::offload
