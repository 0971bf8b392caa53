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

// torchair, the graph compiler of torch_npu, is linked against these. Those that return a pointer answer a value that
// is none: nothing calls them outside of graphs.
ONESIDED_SIM_ABSENT(aclopStartDumpArgs)
ONESIDED_SIM_ABSENT(aclopStopDumpArgs)
ONESIDED_SIM_ABSENT(acltdtCreateChannelWithCapacity)
ONESIDED_SIM_ABSENT(acltdtCreateDataset)
ONESIDED_SIM_ABSENT(acltdtDestroyChannel)
ONESIDED_SIM_ABSENT(acltdtDestroyDataset)
ONESIDED_SIM_ABSENT(acltdtGetDataAddrFromItem)
ONESIDED_SIM_ABSENT(acltdtGetDataItem)
ONESIDED_SIM_ABSENT(acltdtGetDataSizeFromItem)
ONESIDED_SIM_ABSENT(acltdtGetDataTypeFromItem)
ONESIDED_SIM_ABSENT(acltdtGetDatasetSize)
ONESIDED_SIM_ABSENT(acltdtGetDimNumFromItem)
ONESIDED_SIM_ABSENT(acltdtGetDimsFromItem)
ONESIDED_SIM_ABSENT(acltdtReceiveTensor)
