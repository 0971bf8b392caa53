#include "json_object.h"

#include <fmt/format.h>

#include <cstdint>
#include <utility>

namespace onesided::hixl_abi {

namespace {

constexpr int kMaxDepth = 64;

// One pass over the text. Confined to one thread. Every step leaves `at_` behind what it accepted or fails.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  Result<std::map<std::string, std::string>> object() {
    std::map<std::string, std::string> members;
    skip_space();
    if (!take('{')) return expected("'{'");
    skip_space();
    if (!take('}')) {
      do {
        skip_space();
        ONESIDED_TRY_ASSIGN(name, string());
        skip_space();
        if (!take(':')) return expected("':'");
        skip_space();
        const std::size_t start = at_;
        std::string value;
        if (peek() == '"') {
          ONESIDED_TRY_ASSIGN(text, string());
          value = std::move(text);
        } else {
          ONESIDED_TRY(skip_value(1));
          value = text_.substr(start, at_ - start);
        }
        if (!members.emplace(name, std::move(value)).second)
          return Error(Status::kParamInvalid, fmt::format("JSON: the name \"{}\" occurs twice", name));
        skip_space();
      } while (take(','));
      if (!take('}')) return expected("',' or '}'");
    }
    skip_space();
    if (at_ != text_.size()) return expected("the end");
    return members;
  }

 private:
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool take_word(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r'))
      ++at_;
  }
  Error expected(std::string_view what) const {
    return {Status::kParamInvalid, fmt::format("JSON: expected {} at position {}", what, at_)};
  }

  Result<std::uint32_t> four_hex_digits() {
    std::uint32_t code = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      const char c = peek();
      if (c >= '0' && c <= '9')
        code = code * 16 + static_cast<std::uint32_t>(c - '0');
      else if (c >= 'a' && c <= 'f')
        code = code * 16 + static_cast<std::uint32_t>(c - 'a' + 10);
      else if (c >= 'A' && c <= 'F')
        code = code * 16 + static_cast<std::uint32_t>(c - 'A' + 10);
      else
        return expected("four hex digits");
    }
    return code;
  }

  // Names and values here are ASCII words; a \u escape beyond that is refused rather than half understood.
  Result<std::string> string() {
    if (!take('"')) return expected("'\"'");
    std::string out;
    while (at_ < text_.size()) {
      const char c = text_[at_++];
      if (c == '"') return out;
      if (static_cast<unsigned char>(c) < 0x20) break;
      if (c != '\\') {
        out += c;
        continue;
      }
      const char escape = peek();
      ++at_;
      constexpr std::string_view kNames = "\"\\/bfnrt";
      constexpr std::string_view kValues = "\"\\/\b\f\n\r\t";
      if (const auto index = kNames.find(escape); index != std::string_view::npos && escape != '\0') {
        out += kValues[index];
      } else if (escape == 'u') {
        ONESIDED_TRY_ASSIGN(code, four_hex_digits());
        if (code > 0x7f) return expected("an ASCII character");
        out += static_cast<char>(code);
      } else {
        return expected("an escape");
      }
    }
    return expected("'\"'");
  }

  Result<void> skip_value(int depth) {
    if (depth > kMaxDepth) return expected("less nesting");
    const char c = peek();
    if (c == '"') {
      ONESIDED_TRY(string());
      return {};
    }
    if (c == '{' || c == '[') return skip_nested(depth, c == '{');
    if (take_word("true") || take_word("false") || take_word("null")) return {};
    return skip_number();
  }

  Result<void> skip_nested(int depth, bool object) {
    const char close = object ? '}' : ']';
    ++at_;
    skip_space();
    if (take(close)) return {};
    do {
      skip_space();
      if (object) {
        ONESIDED_TRY(string());
        skip_space();
        if (!take(':')) return expected("':'");
        skip_space();
      }
      ONESIDED_TRY(skip_value(depth + 1));
      skip_space();
    } while (take(','));
    if (!take(close)) return expected(object ? "',' or '}'" : "',' or ']'");
    return {};
  }

  bool skip_digits() {
    const std::size_t start = at_;
    while (peek() >= '0' && peek() <= '9') ++at_;
    return at_ > start;
  }

  Result<void> skip_number() {
    take('-');
    if (!take('0') && !skip_digits()) return expected("a value");
    if (take('.') && !skip_digits()) return expected("digits");
    if (take('e') || take('E')) {
      if (!take('+')) take('-');
      if (!skip_digits()) return expected("digits");
    }
    return {};
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

Result<std::map<std::string, std::string>> parse_json_object(std::string_view text) { return Reader(text).object(); }

}  // namespace onesided::hixl_abi
