#include "onesided/engine/endpoint.h"

#include <gtest/gtest.h>

namespace onesided {
namespace {

struct Case {
  const char* text;
  const char* host;
  int port;  // -1: none
};

// Field case B16.
TEST(Endpoint, ParsesTheDocumentedForms) {
  for (const Case& c :
       {Case{"[::1]:5000", "::1", 5000}, Case{"[::1]:0", "::1", 0}, Case{"[::1]", "::1", -1}, Case{"::1", "::1", -1},
        Case{"2605:340::1", "2605:340::1", -1}, Case{"2001:db8::5000", "2001:db8::5000", -1},
        Case{"[fe80::1%lo]:5000", "fe80::1%lo", 5000}, Case{"fe80::1%lo", "fe80::1%lo", -1},
        Case{"127.0.0.1:5000", "127.0.0.1", 5000}, Case{"127.0.0.1", "127.0.0.1", -1},
        Case{"localhost:5000", "localhost", 5000}, Case{"node-7.example.org", "node-7.example.org", -1},
        Case{"[::ffff:127.0.0.1]:5000", "::ffff:127.0.0.1", 5000}, Case{"h:65535", "h", 65535}}) {
    const auto endpoint = Endpoint::parse(c.text);
    ASSERT_TRUE(endpoint.ok()) << c.text << ": " << endpoint.error().to_string();
    EXPECT_EQ(endpoint->host, c.host);
    EXPECT_EQ(endpoint->has_port ? endpoint->port : -1, c.port) << c.text;
    // to_string() and parse() are inverse.
    EXPECT_EQ(*Endpoint::parse(endpoint->to_string()), *endpoint) << c.text;
  }
}

TEST(Endpoint, RefusesEveryOtherForm) {
  for (const char* text : {"host:",         ":5000",        "h:99999",   "",        ":",
                           "[::1",          "::1]",         "[::1]5000", "[::1]:",  "[]:5",
                           "[127.0.0.1]:5", "h:-1",         "h:+1",      "h: 5",    "h:5 ",
                           " h:5",          "a b:5",        "h/x:5",     "1.2.3:5", "300.0.0.1:5",
                           "12345:::1",     "[fe80::1%]:5", "h:5:6",     "-h:5",    "h:0x10",
                           "h:1\n"}) {
    const auto endpoint = Endpoint::parse(text);
    EXPECT_FALSE(endpoint.ok()) << "'" << text << "' gave host '" << endpoint->host << "'";
    EXPECT_EQ(endpoint.status(), Status::kParamInvalid) << text;
  }
}

TEST(Endpoint, ZeroBytesDoNotEndAnAddress) {
  using namespace std::string_view_literals;
  for (const auto text : {"::\0x"sv, "::1\0"sv, "[::1\0]:5"sv, "[fe80::1%lo\0]:5"sv, "127.0.0.1\0:5"sv, "host\0:5"sv})
    EXPECT_EQ(Endpoint::parse(text).status(), Status::kParamInvalid) << text;
}

TEST(Endpoint, OneAddressHasOneSpelling) {
  const auto spelling = [](const char* text) {
    const auto address = resolve_numeric(*Endpoint::parse(text));
    return address ? address->to_string() : address.error().to_string();
  };
  EXPECT_EQ(spelling("[::ffff:127.0.0.1]:5000"), "127.0.0.1:5000");
  EXPECT_EQ(spelling("[0:0:0:0:0:0:0:1]:5000"), "[::1]:5000");
  EXPECT_EQ(spelling("[fe80::1%lo]:5000"), "[fe80::1%1]:5000");
  EXPECT_EQ(spelling("[fe80::1%1]:5000"), "[fe80::1%1]:5000");
  EXPECT_EQ(resolve_numeric(*Endpoint::parse("[fe80::1%nope]:5")).status(), Status::kParamInvalid);
  EXPECT_EQ(resolve_numeric(*Endpoint::parse("localhost:5")).status(), Status::kNotFound);
}

}  // namespace
}  // namespace onesided
