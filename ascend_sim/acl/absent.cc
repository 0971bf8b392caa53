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

// torch_npu up to 2.9 is linked against these ten of libhccl; later ones look them up.
ONESIDED_SIM_ABSENT(HcclAllGather)
ONESIDED_SIM_ABSENT(HcclAllReduce)
ONESIDED_SIM_ABSENT(HcclBroadcast)
ONESIDED_SIM_ABSENT(HcclCommDestroy)
ONESIDED_SIM_ABSENT(HcclCommInitAll)
ONESIDED_SIM_ABSENT(HcclCommInitRootInfo)
ONESIDED_SIM_ABSENT(HcclGetRootInfo)
ONESIDED_SIM_ABSENT(HcclRecv)
ONESIDED_SIM_ABSENT(HcclReduceScatter)
ONESIDED_SIM_ABSENT(HcclSend)
