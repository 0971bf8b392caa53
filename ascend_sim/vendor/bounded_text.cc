// Two text functions with bounds, which the vendor's stack brings along under these names and torchair is linked
// against. They answer 0 or a length, and -1 where the text does not fit; the destination is then the empty string.
#include <cstdarg>
#include <cstdio>
#include <cstring>

extern "C" {

__attribute__((visibility("default"))) int strcpy_s(char* to, std::size_t capacity, const char* from) {
  if (to == nullptr || capacity == 0) return -1;
  const std::size_t length = from == nullptr ? capacity : std::strlen(from);
  if (length >= capacity) {
    to[0] = '\0';
    return -1;
  }
  std::memcpy(to, from, length + 1);
  return 0;
}

// At most `count` characters are written.
__attribute__((visibility("default"))) int vsnprintf_s(char* to, std::size_t capacity, std::size_t count,
                                                       const char* format, std::va_list values) {
  if (to == nullptr || capacity == 0) return -1;
  const std::size_t limit = count < capacity ? count + 1 : capacity;
  const int length = std::vsnprintf(to, limit, format, values);
  if (length >= 0 && static_cast<std::size_t>(length) < limit) return length;
  if (count >= capacity) to[0] = '\0';
  return -1;
}

}  // extern "C"
