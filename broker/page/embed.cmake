# Writes a C++ file with the bytes of others: cmake -DOUT=file -DFOLDER=folder -DFILES=a;b -P embed.cmake
set(text "// Made by embed.cmake.\n#include \"broker/page/assets.h\"\n\nnamespace vrambroker::page {\nnamespace {\n\n")
set(table "")
set(number 0)
foreach(name IN LISTS FILES)
  file(READ ${FOLDER}/${name} bytes HEX)
  string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
  string(APPEND text "const unsigned char kFile${number}[] = {\n${bytes}0};\n")
  string(APPEND table
    "    {\"/${name}\", {reinterpret_cast<const char*>(kFile${number}), sizeof(kFile${number}) - 1}},\n")
  math(EXPR number "${number} + 1")
endforeach()
string(APPEND text "\nconst Asset kAssets[] = {\n${table}};\n\n}  // namespace\n\n"
  "const Asset* FindAsset(absl::string_view path) {\n"
  "  for (const Asset& asset : kAssets) {\n    if (asset.path == path) return &asset;\n  }\n"
  "  return nullptr;\n}\n\n}  // namespace vrambroker::page\n")
file(WRITE ${OUT} "${text}")
