// The string class of the vendor's API, all of libmetadef.so that programs use. Here alone its text is touched.
#include <cstring>

#include "vendor_abi.h"

namespace ge {

AscendString::AscendString(const char* text) : AscendString(text, text == nullptr ? 0 : std::strlen(text)) {}

AscendString::AscendString(const char* text, std::size_t length)
    : text_(std::make_shared<std::string>(text == nullptr ? "" : text, text == nullptr ? 0 : length)) {}

const char* AscendString::GetString() const { return text_ ? text_->c_str() : ""; }

std::size_t AscendString::GetLength() const { return text_ ? text_->size() : 0; }

// None and the empty string are equal: a default-made key finds what "" stored.
static int compare(const AscendString& a, const AscendString& b) {
  const std::size_t common = a.GetLength() < b.GetLength() ? a.GetLength() : b.GetLength();
  if (const int order = std::memcmp(a.GetString(), b.GetString(), common); order != 0) return order;
  if (a.GetLength() == b.GetLength()) return 0;
  return a.GetLength() < b.GetLength() ? -1 : 1;
}

bool AscendString::operator<(const AscendString& other) const { return compare(*this, other) < 0; }
bool AscendString::operator>(const AscendString& other) const { return compare(*this, other) > 0; }
bool AscendString::operator<=(const AscendString& other) const { return compare(*this, other) <= 0; }
bool AscendString::operator>=(const AscendString& other) const { return compare(*this, other) >= 0; }
bool AscendString::operator==(const AscendString& other) const { return compare(*this, other) == 0; }
bool AscendString::operator!=(const AscendString& other) const { return compare(*this, other) != 0; }

}  // namespace ge
