#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine_options.h"
#include "json_object.h"

namespace onesided::hixl_abi {
namespace {

using testing::HasSubstr;
using Options = std::map<std::string, std::string>;

TEST(EngineOptions, DefaultsAndTheNamesThatMooncakePasses) {
  const auto plain = EngineOptions::parse({});
  ASSERT_TRUE(plain.ok());
  EXPECT_FALSE(plain->auto_connect);
  EXPECT_EQ(plain->staging_buffers, 4U);
  EXPECT_EQ(plain->staging_buffer_bytes, 8U << 20);

  const auto mooncake = EngineOptions::parse({{"AutoConnect", "1"},
                                              {"adxl.BufferPool", "0:0"},
                                              {"adxl.RdmaTrafficClass", "160"},
                                              {"adxl.RdmaServiceLevel", "4"},
                                              {"adxl.LocalCommRes", R"({"version":"1.3"})"},
                                              {"GlobalResourceConfig", R"({"connect_pool.thread_num":"3",
                                                 "connect_pool.task_queue_capacity": 17,
                                                 "comm_resource_config.protocol_desc": ["roce:device"]})"}});
  ASSERT_TRUE(mooncake.ok()) << mooncake.error().text();
  EXPECT_TRUE(mooncake->auto_connect);
  EXPECT_EQ(mooncake->staging_buffers, 0U);
  EXPECT_EQ(mooncake->rdma_traffic_class, 160U);
  EXPECT_EQ(mooncake->connect_threads, 3U);
  EXPECT_EQ(mooncake->connect_queue_capacity, 17U);
}

TEST(EngineOptions, WrongValuesAreRefusedByName) {
  const std::pair<std::string, std::string> wrong[] = {
      {"AutoConnect", "yes"},
      {"AutoConnect", ""},
      {"BufferPool", "4"},
      {"BufferPool", "4:"},
      {"BufferPool", "0:8"},
      {"BufferPool", "-1:8"},
      {"BufferPool", "4:99999999999"},
      {"RdmaTrafficClass", "3"},
      {"RdmaTrafficClass", "256"},
      {"RdmaServiceLevel", "8"},
      {"RdmaServiceLevel", " 1"},
      {"LocalCommRes", "{"},
      {"GlobalResourceConfig", "[]"},
      {"GlobalResourceConfig", R"({"connect_pool.thread_num":"0"})"},
      {"EnableUseFabricMem", "2"},
      {"NoSuchOption", "1"},
  };
  for (const auto& [name, value] : wrong) {
    const auto parsed = EngineOptions::parse(Options{{name, value}});
    EXPECT_EQ(parsed.status(), Status::kParamInvalid) << name << "=" << value;
    ASSERT_FALSE(parsed.ok());
    EXPECT_THAT(parsed.error().text(), HasSubstr(name));
  }
  EXPECT_EQ(EngineOptions::parse({{"EnableUseFabricMem", "1"}}).status(), Status::kUnsupported);
}

TEST(JsonObject, ReadsTheTopLevel) {
  const auto object = parse_json_object(R"( { "a" : "x\"y\u0041", "b":-1.5e+3, "c":{"d":[1,{"e":null}]}, "f":[] } )");
  ASSERT_TRUE(object.ok()) << object.error().text();
  const Options expected = {{"a", "x\"yA"}, {"b", "-1.5e+3"}, {"c", R"({"d":[1,{"e":null}]})"}, {"f", "[]"}};
  EXPECT_EQ(*object, expected);
  EXPECT_TRUE(parse_json_object("{}")->empty());
}

TEST(JsonObject, RefusesWhatIsNotAnObject) {
  const std::string deep = R"({"a":)" + std::string(100, '[') + std::string(100, ']') + "}";
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("[]"), std::string(R"({"a"})"), std::string(R"({"a":1,})"),
        std::string(R"({"a":1}x)"), std::string(R"({"a":01})"), std::string(R"({"a":"\q"})"),
        std::string(R"({"a":"\u00e9"})"), std::string(R"({"a":1,"a":2})"), std::string("{\"a\":\"\n\"}"),
        std::string(R"({"a":+1})"), std::string(R"({"a":"b)"), std::string(R"({"a":"\)"), deep})
    EXPECT_EQ(parse_json_object(text).status(), Status::kParamInvalid) << text;
}

TEST(JsonObject, EveryPrefixIsRefused) {
  const std::string whole = R"({"a":"x\u0041","b":[1,{"c":true}]})";
  ASSERT_TRUE(parse_json_object(whole).ok());
  for (std::size_t n = 0; n < whole.size(); ++n) EXPECT_FALSE(parse_json_object(whole.substr(0, n)).ok()) << n;
}

}  // namespace
}  // namespace onesided::hixl_abi
