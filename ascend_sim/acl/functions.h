// The functions of the public ACL API that the simulator has, declared in one place: the files that define them
// and the tests that call them agree, and a reader sees what there is. Handles are void*.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ascend_sim/acl/abi.h"

extern "C" {

using onesided::sim::AclError;
using onesided::sim::MemAccessDesc;
using onesided::sim::MemcpyBatchAttr;
using onesided::sim::PhysicalMemProp;
using onesided::sim::PtrAttributes;

// Devices and contexts
AclError aclInit(const char* config_path);
AclError aclFinalize();
AclError aclrtGetDeviceCount(std::uint32_t* count);
AclError aclrtSetDevice(std::int32_t device);
AclError aclrtGetDevice(std::int32_t* device);
AclError aclrtResetDevice(std::int32_t device);
AclError aclrtResetDeviceForce(std::int32_t device);
AclError aclrtCreateContext(void** context, std::int32_t device);
AclError aclrtDestroyContext(void* context);
AclError aclrtSetCurrentContext(void* context);
AclError aclrtGetCurrentContext(void** context);
AclError aclrtGetPrimaryCtxState(std::int32_t device, std::uint32_t* flags, std::int32_t* active);
const char* aclrtGetSocName();
AclError aclrtGetPhyDevIdByLogicDevId(std::int32_t logical, std::int32_t* physical);
AclError aclrtGetLogicDevIdByUserDevId(std::int32_t user, std::int32_t* logical);
AclError aclrtDeviceGetUuid(std::int32_t device, void* uuid);
AclError aclrtDeviceGetBareTgid(std::int32_t* pid);
AclError aclrtDeviceCanAccessPeer(std::int32_t* can_access, std::int32_t device, std::int32_t peer);
AclError aclrtDeviceEnablePeerAccess(std::int32_t peer, std::uint32_t flags);

// Memory
AclError aclrtMalloc(void** address, std::size_t nbytes, std::uint32_t policy);
AclError aclrtMallocAlign32(void** address, std::size_t nbytes, std::uint32_t policy);
AclError aclrtFree(void* address);
AclError aclrtMallocHost(void** address, std::size_t nbytes);
AclError aclrtMallocHostWithCfg(void** address, std::uint64_t nbytes, void* config);
AclError aclrtFreeHost(void* address);
AclError aclrtHostRegister(void* address, std::uint64_t nbytes, std::int32_t type, void** device);
AclError aclrtHostRegisterV2(void* address, std::uint64_t nbytes, std::uint32_t flag);
AclError aclrtHostGetDevicePointer(void* host, void** device, std::uint32_t flag);
AclError aclrtHostUnregister(void* address);
AclError aclrtGetMemInfo(std::int32_t attribute, std::size_t* free_bytes, std::size_t* total_bytes);
AclError aclrtPointerGetAttributes(const void* address, PtrAttributes* attributes);

// Copies and fills
AclError aclrtMemcpy(void* to, std::size_t capacity, const void* from, std::size_t nbytes, std::int32_t kind);
AclError aclrtMemcpyAsync(void* to, std::size_t capacity, const void* from, std::size_t nbytes, std::int32_t kind,
                          void* stream);
AclError aclrtMemcpyAsyncWithCondition(void* to, std::size_t capacity, const void* from, std::size_t nbytes,
                                       std::int32_t kind, void* stream);
AclError aclrtMemcpyBatch(void** to, std::size_t* capacity, void** from, std::size_t* nbytes, std::size_t count,
                          MemcpyBatchAttr* attributes, std::size_t* attribute_starts, std::size_t attribute_count,
                          std::size_t* failed_at);
AclError aclrtMemcpyBatchAsync(void** to, std::size_t* capacity, void** from, std::size_t* nbytes, std::size_t count,
                               MemcpyBatchAttr* attributes, std::size_t* attribute_starts, std::size_t attribute_count,
                               std::size_t* failed_at, void* stream);
AclError aclrtMemset(void* address, std::size_t capacity, std::int32_t value, std::size_t nbytes);
AclError aclrtMemsetAsync(void* address, std::size_t capacity, std::int32_t value, std::size_t nbytes, void* stream);

// Streams, events, host callbacks
AclError aclrtCreateStream(void** stream);
AclError aclrtCreateStreamWithConfig(void** stream, std::uint32_t priority, std::uint32_t flags);
AclError aclrtDestroyStream(void* stream);
AclError aclrtDestroyStreamForce(void* stream);
AclError aclrtStreamAbort(void* stream);
AclError aclrtDeviceTaskAbort(std::int32_t device, std::uint32_t timeout_ms);
AclError aclrtSynchronizeStream(void* stream);
AclError aclrtSynchronizeStreamWithTimeout(void* stream, std::int32_t timeout_ms);
AclError aclrtSynchronizeDevice();
AclError aclrtSynchronizeDeviceWithTimeout(std::int32_t timeout_ms);
AclError aclrtStreamQuery(void* stream, std::int32_t* status);
AclError aclrtStreamGetId(void* stream, std::int32_t* id);
AclError aclrtCreateEvent(void** event);
AclError aclrtCreateEventWithFlag(void** event, std::uint32_t flags);
AclError aclrtCreateEventExWithFlag(void** event, std::uint32_t flags);
AclError aclrtDestroyEvent(void* event);
AclError aclrtRecordEvent(void* event, void* stream);
AclError aclrtResetEvent(void* event, void* stream);
AclError aclrtStreamWaitEvent(void* stream, void* event);
AclError aclrtQueryEventStatus(void* event, std::int32_t* status);
AclError aclrtQueryEventWaitStatus(void* event, std::int32_t* status);
AclError aclrtSynchronizeEvent(void* event);
AclError aclrtEventElapsedTime(float* elapsed_ms, void* start, void* end);
AclError aclrtEventGetTimestamp(void* event, std::uint64_t* timestamp_us);
AclError aclrtLaunchHostFunc(void* stream, void (*callback)(void*), void* argument);
AclError aclrtLaunchCallback(void (*callback)(void*), void* argument, std::int32_t block, void* stream);
AclError aclrtSubscribeReport(std::uint64_t thread, void* stream);
AclError aclrtUnSubscribeReport(std::uint64_t thread, void* stream);
AclError aclmdlRICaptureGetInfo(void* stream, std::int32_t* status, void** model);

// Virtual memory
AclError aclrtReserveMemAddress(void** base, std::size_t nbytes, std::size_t alignment, void* wanted,
                                std::uint64_t flags);
AclError aclrtReserveMemAddressNoUCMemory(void** base, std::size_t nbytes, std::size_t alignment, void* wanted,
                                          std::uint64_t flags);
AclError aclrtReleaseMemAddress(void* base);
AclError aclrtMallocPhysical(void** handle, std::size_t nbytes, const PhysicalMemProp* prop, std::uint64_t flags);
AclError aclrtFreePhysical(void* handle);
AclError aclrtMapMem(void* base, std::size_t nbytes, std::size_t offset, void* handle, std::uint64_t flags);
AclError aclrtUnmapMem(void* base);
AclError aclrtMemGetAllocationGranularity(PhysicalMemProp* prop, std::int32_t option, std::size_t* granularity);
AclError aclrtMemSetAccess(void* base, std::size_t nbytes, MemAccessDesc* access, std::size_t count);

// Memory across processes
AclError aclrtIpcMemGetExportKey(void* address, std::size_t nbytes, char* key, std::size_t capacity,
                                 std::uint64_t flags);
AclError aclrtIpcMemSetImportPid(const char* key, std::int32_t* pids, std::size_t count);
AclError aclrtIpcMemImportByKey(void** address, const char* key, std::uint64_t flags);
AclError aclrtIpcMemClose(const char* key);
AclError aclrtMemExportToShareableHandle(void* handle, std::int32_t type, std::uint64_t flags,
                                         std::uint64_t* shareable);
AclError aclrtMemSetPidToShareableHandle(std::uint64_t shareable, std::int32_t* pids, std::size_t count);
AclError aclrtMemImportFromShareableHandle(std::uint64_t shareable, std::int32_t device, void** handle);
AclError aclrtMemExportToShareableHandleV2(void* handle, std::uint64_t flags, std::int32_t type, void* shareable);
AclError aclrtMemImportFromShareableHandleV2(void* shareable, std::int32_t type, std::uint64_t flags, void** handle);

// Descriptors, buffers, attributes
void* aclCreateTensorDesc(std::int32_t type, int dim_count, const std::int64_t* dims, std::int32_t format);
void aclDestroyTensorDesc(const void* desc);
void* aclCreateDataBuffer(void* address, std::size_t nbytes);
AclError aclDestroyDataBuffer(const void* buffer);
AclError aclSetTensorFormat(void* desc, std::int32_t format);
AclError aclSetTensorShape(void* desc, int dim_count, const std::int64_t* dims);
void aclSetTensorDescName(void* desc, const char* name);
AclError aclSetTensorPlaceMent(void* desc, std::int32_t placement);
AclError aclSetTensorConst(void* desc, const void* data, std::size_t nbytes);
std::int32_t aclGetTensorDescType(const void* desc);
std::int32_t aclGetTensorDescFormat(const void* desc);
std::size_t aclGetTensorDescNumDims(const void* desc);
AclError aclGetTensorDescDimV2(const void* desc, std::size_t index, std::int64_t* dim);
void* aclopCreateAttr();
void aclopDestroyAttr(const void* attributes);
AclError aclopSetAttrBool(void* attributes, const char* name, std::uint8_t value);
AclError aclopSetAttrInt(void* attributes, const char* name, std::int64_t value);
AclError aclopSetAttrDataType(void* attributes, const char* name, std::int32_t value);
AclError aclopSetAttrFloat(void* attributes, const char* name, float value);
AclError aclopSetAttrString(void* attributes, const char* name, const char* value);
AclError aclopSetAttrListInt(void* attributes, const char* name, int count, const std::int64_t* values);
AclError aclopSetAttrListBool(void* attributes, const char* name, int count, const std::uint8_t* values);
AclError aclopSetAttrListFloat(void* attributes, const char* name, int count, const float* values);
AclError aclopSetAttrListListInt(void* attributes, const char* name, int count, const int* counts,
                                 const std::int64_t* const* values);

// Operators by name
AclError aclopCompileAndExecute(const char* name, int input_count, const void* const* input_descs,
                                const void* const* inputs, int output_count, const void* const* output_descs,
                                void* const* outputs, const void* attributes, std::int32_t engine, std::int32_t compile,
                                const char* path, void* stream);
AclError aclopCompileAndExecuteV2(const char* name, int input_count, void** input_descs, void** inputs,
                                  int output_count, void** output_descs, void** outputs, void* attributes,
                                  std::int32_t engine, std::int32_t compile, const char* path, void* stream);

// Options
AclError aclrtSetSysParamOpt(std::int32_t option, std::int64_t value);
AclError aclrtCtxSetSysParamOpt(std::int32_t option, std::int64_t value);
AclError aclrtGetSysParamOpt(std::int32_t option, std::int64_t* value);
AclError aclrtCtxGetSysParamOpt(std::int32_t option, std::int64_t* value);
AclError aclSetCompileopt(std::int32_t option, const char* value);
std::size_t aclGetCompileoptSize(std::int32_t option);
AclError aclGetCompileopt(std::int32_t option, char* value, std::size_t capacity);
AclError aclrtSetOpExecuteTimeOut(std::uint32_t seconds);
AclError aclrtSetOpExecuteTimeOutV2(std::uint64_t us, std::uint64_t* actual);
AclError aclrtSetOpWaitTimeout(std::uint32_t seconds);
AclError aclrtSetDeviceSatMode(std::int32_t mode);
AclError aclrtGetDeviceSatMode(std::int32_t* mode);

// The machine, logs, the profiler
AclError aclGetDeviceCapability(std::uint32_t device, std::int32_t what, std::int64_t* value);
void aclAppLog(std::int32_t level, const char* function, const char* file, std::uint32_t line, const char* format, ...);
std::int32_t MsprofRegisterCallback(std::uint32_t module, void* handler);
std::int32_t MsprofReportApi(std::uint32_t aging, const void* data);
std::int32_t MsprofReportCompactInfo(std::uint32_t aging, const void* data, std::uint32_t);
std::int32_t MsprofReportAdditionalInfo(std::uint32_t aging, const void* data, std::uint32_t);
std::uint64_t MsprofSysCycleTime();
std::uint64_t MsprofGetHashId(const char* text, std::size_t length);

// Errors
const char* aclGetRecentErrMsg();

}  // extern "C"
