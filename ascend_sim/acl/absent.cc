// Functions that unmodified binaries are linked against but that a simulator has nothing to do for. Each says so
// (207000, its name logged once); nothing here pretends to have worked.
#include "ascend_sim/acl/call.h"

using onesided::sim::AclError;
using onesided::sim::api;
using onesided::sim::unsupported;

#define ONESIDED_SIM_ABSENT(function)                             \
  ONESIDED_SIM_EXPORT AclError function() {                       \
    return api(#function, [] { return unsupported(#function); }); \
  }

ONESIDED_SIM_ABSENT(aclmdlInitDump)
ONESIDED_SIM_ABSENT(aclmdlSetDump)
ONESIDED_SIM_ABSENT(aclmdlFinalizeDump)
ONESIDED_SIM_ABSENT(aclrtBinaryGetFunction)
ONESIDED_SIM_ABSENT(aclrtBinaryLoadFromData)
ONESIDED_SIM_ABSENT(aclrtGetFunctionAddr)
ONESIDED_SIM_ABSENT(aclrtProcessReport)
ONESIDED_SIM_ABSENT(rtDevBinaryRegister)
ONESIDED_SIM_ABSENT(rtFunctionRegister)
ONESIDED_SIM_ABSENT(rtGetC2cCtrlAddr)
ONESIDED_SIM_ABSENT(rtKernelLaunch)
