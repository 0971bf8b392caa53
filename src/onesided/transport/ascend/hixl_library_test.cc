#include "onesided/transport/ascend/hixl_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace onesided::ascend {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(HixlLibrary, AMissingLibrarySaysWhatToDo) {
  const auto library = HixlLibrary::load("libno_such_hixl.so");
  ASSERT_EQ(library.status(), Status::kNotFound);
  EXPECT_THAT(library.error().text(),
              AllOf(HasSubstr("libno_such_hixl.so"), HasSubstr("set_env.sh"), HasSubstr("ONESIDED_HIXL_LIBRARY")));
}

TEST(HixlLibrary, AnotherLibraryIsRefusedNamingWhatItLacks) {
  const auto library = HixlLibrary::load("libc.so.6");
  ASSERT_EQ(library.status(), Status::kUnsupported);
  EXPECT_THAT(library.error().text(), AllOf(HasSubstr("libc.so.6"), HasSubstr("_ZN4hixl4HixlC1Ev"),
                                            HasSubstr("_ZN4hixl4Hixl17GetTransferStatusERKPvRNS_14TransferStatusE"),
                                            HasSubstr("_ZN2ge12AscendStringC1EPKc")));
}

TEST(HixlLibrary, TheEnvironmentNamesTheLibrary) {
  ASSERT_EQ(::setenv("ONESIDED_HIXL_LIBRARY", "libno_such_either.so", 1), 0);
  const auto library = HixlLibrary::load();
  ::unsetenv("ONESIDED_HIXL_LIBRARY");
  ASSERT_EQ(library.status(), Status::kNotFound);
  EXPECT_THAT(library.error().text(), HasSubstr("libno_such_either.so"));
}

}  // namespace
}  // namespace onesided::ascend
