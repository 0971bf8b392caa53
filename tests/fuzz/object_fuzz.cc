// What Ray carries from an object's owner to its readers has been through other hands; whatever decodes must
// encode to the same bytes.
#include <algorithm>

#include "fuzz_target.h"
#include "onesided/base/check.h"
#include "onesided/node/exchange/object_desc.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const auto object = onesided::ObjectDesc::decode(input);
  if (object) ONESIDED_CHECK(object->encode() == input, "two spellings");
  return 0;
}

std::vector<std::vector<std::uint8_t>> fuzz_seeds() {
  using namespace onesided;
  const ObjectDesc objects[] = {
      {},
      {.tensors = {{MemType::kHost, {}}, {MemType::kHost, {1}}}, .regions = "r"},
      {.tensors = {{MemType::kDevice, {1ULL << 40, 5}}, {MemType::kHost, {300}}}, .regions = "the engine's part"},
  };
  std::vector<std::vector<std::uint8_t>> seeds;
  for (const auto& object : objects) {
    const std::string bytes = object.encode();
    seeds.emplace_back(bytes.begin(), bytes.end());
  }
  return seeds;
}
