// What a fuzz target consists of, so that libFuzzer and our own seeded mutations run the very same code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

// Aborts (ONESIDED_CHECK) if the property of the target does not hold for these bytes.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

// Valid inputs to mutate from.
std::vector<std::vector<std::uint8_t>> fuzz_seeds();
