// The exported functions, as programs that were compiled against the vendor's declarations call them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ascend_sim/hccl/abi.h"

extern "C" {

using onesided::sim::hccl::CommConfig;
using onesided::sim::hccl::RootInfo;
using onesided::sim::hccl::SendRecvItem;

std::int32_t HcclGetRootInfo(RootInfo* root);
std::int32_t HcclGetRootInfoScalable(RootInfo* root);
std::int32_t HcclCommInitRootInfo(std::uint32_t ranks, const RootInfo* root, std::uint32_t rank, void** comm);
std::int32_t HcclCommInitRootInfoConfig(std::uint32_t ranks, const RootInfo* root, std::uint32_t rank,
                                        const CommConfig* config, void** comm);
std::int32_t HcclCommInitRootInfoScalable(std::uint32_t ranks, std::uint32_t roots, const RootInfo* list,
                                          std::uint32_t rank, std::uint32_t extra_roots, const CommConfig* config,
                                          void** comm);
std::int32_t HcclCreateSubCommConfig(void** comm, std::uint32_t count, std::uint32_t* ranks, std::uint64_t id,
                                     std::uint32_t rank, CommConfig* config, void** part);
std::int32_t HcclCommInitAll(std::uint32_t count, std::int32_t* devices, void** comms);
std::int32_t HcclCommDestroy(void* comm);
std::int32_t HcclGetRankSize(void* comm, std::uint32_t* size);
std::int32_t HcclGetRankId(void* comm, std::uint32_t* rank);
std::int32_t HcclGetCommName(void* comm, char* name);
std::int32_t HcclGetCommAsyncError(void* comm, std::int32_t* code);
const char* HcclGetErrorString(std::int32_t code);
std::uint32_t HcclGetCommConfigCapability();
std::int32_t HcclCommSuspend(void* comm);
std::int32_t HcclCommResume(void* comm);
std::int32_t HcclAllReduce(void* send, void* receive, std::uint64_t count, std::int32_t type, std::int32_t op,
                           void* comm, void* stream);
std::int32_t HcclReduce(void* send, void* receive, std::uint64_t count, std::int32_t type, std::int32_t op,
                        std::uint32_t root, void* comm, void* stream);
std::int32_t HcclReduceScatter(void* send, void* receive, std::uint64_t count, std::int32_t type, std::int32_t op,
                               void* comm, void* stream);
std::int32_t HcclReduceScatterV(void* send, const void* counts, const void* offsets, void* receive, std::uint64_t count,
                                std::int32_t type, std::int32_t op, void* comm, void* stream);
std::int32_t HcclBroadcast(void* buffer, std::uint64_t count, std::int32_t type, std::uint32_t root, void* comm,
                           void* stream);
std::int32_t HcclScatter(void* send, void* receive, std::uint64_t count, std::int32_t type, std::uint32_t root,
                         void* comm, void* stream);
std::int32_t HcclAllGather(void* send, void* receive, std::uint64_t count, std::int32_t type, void* comm, void* stream);
std::int32_t HcclAllGatherV(void* send, std::uint64_t count, void* receive, const void* counts, const void* offsets,
                            std::int32_t type, void* comm, void* stream);
std::int32_t HcclAlltoAll(const void* send, std::uint64_t send_count, std::int32_t send_type, const void* receive,
                          std::uint64_t receive_count, std::int32_t receive_type, void* comm, void* stream);
std::int32_t HcclAlltoAllV(const void* send, const void* send_counts, const void* send_offsets, std::int32_t send_type,
                           const void* receive, const void* receive_counts, const void* receive_offsets,
                           std::int32_t receive_type, void* comm, void* stream);
std::int32_t HcclAlltoAllVC(const void* send, const void* counts, std::int32_t send_type, const void* receive,
                            std::int32_t receive_type, void* comm, void* stream);
std::int32_t HcclBarrier(void* comm, void* stream);
std::int32_t HcclSend(void* buffer, std::uint64_t count, std::int32_t type, std::uint32_t peer, void* comm,
                      void* stream);
std::int32_t HcclRecv(void* buffer, std::uint64_t count, std::int32_t type, std::uint32_t peer, void* comm,
                      void* stream);
std::int32_t HcclBatchSendRecv(SendRecvItem* items, std::uint32_t count, void* comm, void* stream);
std::int32_t HcclGroupStart();
std::int32_t HcclGroupEnd();
std::int32_t HcclCommRegister(void* comm, void* address, std::uint64_t nbytes, void** handle, std::uint32_t flag);
std::int32_t HcclCommDeregister(void* comm, void* handle);
std::int32_t HcclCommSymWinRegister(void* comm, void* address, std::uint64_t nbytes, void** handle, std::uint32_t flag);
std::int32_t HcclCommSymWinDeregister(void* handle);
std::int32_t HcclCommExchangeMem(void* comm, void* window, std::uint32_t* peers, std::uint32_t count);
std::int32_t HcclCommSetMemoryRange(void* comm, void* base, std::size_t nbytes, std::size_t alignment,
                                    std::uint64_t flags);
std::int32_t HcclCommUnsetMemoryRange(void* comm, void* base);
std::int32_t HcclCommActivateCommMemory(void* comm, void* address, std::size_t nbytes, std::size_t offset,
                                        void* physical, std::uint64_t flags);
std::int32_t HcclCommDeactivateCommMemory(void* comm, void* address);
std::int32_t HcclCommWorkingDevNicSet(void* comm, std::uint32_t* ranks, bool* use_backup, std::uint32_t count);
std::int32_t HcclSetConfig(std::int32_t config, std::int32_t value);
std::int32_t HcclGetConfig(std::int32_t config, std::int32_t* value);
std::int32_t HcommMemAlloc(void** address, std::uint64_t nbytes);
std::int32_t HcommMemFree(void* address);

}  // extern "C"
