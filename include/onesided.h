/* onesided in C: one-sided transfers of registered memory between processes, and aligned memory pools.
 *
 * Every function may be called from any thread at any time; *_free is the exception: no other call with the same object
 * may be in progress. A function that can fail returns a onesided_status; onesided_last_error() then has the words for the
 * calling thread. No exception and no signal crosses this interface. In a forked child every call on an object of the
 * parent returns ONESIDED_CLOSED.
 *
 * Stability: objects are opaque. A structure starts with `size`; set it with the ONESIDED_*_INIT macros. A later library
 * reads no further than `size` and takes its defaults for the rest; an earlier library refuses a structure that is
 * larger than the one it knows. Functions and constants are only added. onesided_abi_version() changes when that is
 * no longer true.
 *
 * Strings are UTF-8, end with a zero byte and are copied by the call. Sizes are bytes. `timeout_ms` must be above 0, or
 * ONESIDED_NO_LIMIT.
 */
#ifndef ONESIDED_H
#define ONESIDED_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define ONESIDED_API __attribute__((visibility("default")))
#define ONESIDED_MUST_CHECK __attribute__((warn_unused_result))
#else
#define ONESIDED_API
#define ONESIDED_MUST_CHECK
#endif

#define ONESIDED_ABI_VERSION 1
#define ONESIDED_NO_LIMIT INT64_MAX
#define ONESIDED_DEFAULT_TIMEOUT_MS 1000

/* Values below 600000 are those of HIXL's public interface; the others are this project's (docs/errors.md). */
typedef uint32_t onesided_status;
enum {
  ONESIDED_SUCCESS = 0,
  ONESIDED_PARAM_INVALID = 103900,
  ONESIDED_TIMEOUT = 103901,
  ONESIDED_NOT_CONNECTED = 103902,
  ONESIDED_ALREADY_CONNECTED = 103903,
  ONESIDED_NOTIFY_FAILED = 103904,
  ONESIDED_UNSUPPORTED = 103905,
  ONESIDED_RESOURCE_EXHAUSTED = 203900,
  ONESIDED_FAILED = 503900,
  ONESIDED_STALE = 910001,
  ONESIDED_BUSY = 910002,
  ONESIDED_ADDR_IN_USE = 910003,
  ONESIDED_NOT_FOUND = 910004,
  ONESIDED_PEER_LOST = 910005,
  ONESIDED_AUTH_FAILED = 910006,
  ONESIDED_CANCELLED = 910007,
  ONESIDED_MISALIGNED = 910008,
  ONESIDED_CLOSED = 910009
};

typedef uint32_t onesided_memory_type;
enum { ONESIDED_MEMORY_HOST = 0, ONESIDED_MEMORY_DEVICE = 1 };

typedef uint32_t onesided_operation;
enum { ONESIDED_READ = 0, ONESIDED_WRITE = 1 };

typedef uint32_t onesided_transfer_status;
enum {
  ONESIDED_TRANSFER_WAITING = 0,
  ONESIDED_TRANSFER_COMPLETED = 1,
  ONESIDED_TRANSFER_TIMEOUT = 2,
  ONESIDED_TRANSFER_FAILED = 3
};

/* The version of the library ("0.1.0") and of this interface. The string is constant. */
ONESIDED_API const char* onesided_version(void);
ONESIDED_API uint32_t onesided_abi_version(void);
/* "STALE", ...; "UNKNOWN" for a number that is no status. The string is constant. */
ONESIDED_API const char* onesided_status_name(onesided_status status);
/* What the last call that failed on this thread had to say: what failed, the value, what to do. Valid until the next
 * call that fails on this thread; "" before the first. */
ONESIDED_API const char* onesided_last_error(void);

/* ------------------------------------------------------------------------------------------------------- engines */

typedef struct onesided_engine onesided_engine;
typedef struct onesided_request onesided_request;
typedef struct onesided_remote onesided_remote;
typedef struct onesided_notification onesided_notification;

typedef struct onesided_option {
  const char* name;
  const char* value;
} onesided_option;

typedef struct onesided_engine_config {
  size_t size;
  const char* local_engine;       /* "ip", "ip:port", "[::1]:0", "host:port"; NULL: "127.0.0.1:0" */
  const onesided_option* options; /* docs/engine.md lists them; an unknown name is refused */
  size_t option_count;
} onesided_engine_config;
#define ONESIDED_ENGINE_CONFIG_INIT {sizeof(onesided_engine_config), NULL, NULL, 0}

/* Names one registration of one engine, for ever. A value. */
typedef struct onesided_mem_handle {
  uint32_t index;
  uint32_t generation;
  uint64_t instance;
} onesided_mem_handle;

/* One contiguous range to move. `local` and `remote` are addresses in this process and in the peer. */
typedef struct onesided_item {
  uint64_t local;
  uint64_t remote;
  uint64_t nbytes;
} onesided_item;

/* The same, with the remote side as a described range: bytes [offset, offset + nbytes) of range number `range`. */
typedef struct onesided_bound_item {
  uint64_t local;
  uint64_t range;
  uint64_t offset;
  uint64_t nbytes;
} onesided_bound_item;

typedef struct onesided_range {
  uint64_t address;
  uint64_t nbytes;
} onesided_range;

typedef struct onesided_item_result {
  onesided_status status;
  uint32_t reserved;
  uint64_t bytes_done;
} onesided_item_result;

/* Opens an engine that listens on config->local_engine and nowhere else. The caller owns *engine. PARAM_INVALID,
 * ADDR_IN_USE, NOT_FOUND (the file of the shared secret). */
ONESIDED_API ONESIDED_MUST_CHECK onesided_status onesided_engine_open(const onesided_engine_config* config,
                                                                      onesided_engine** engine);
/* Ends all transfers and connections; returns when no byte moves. Later calls on the engine return CLOSED. Idempotent. */
ONESIDED_API onesided_status onesided_engine_close(onesided_engine* engine);
/* Closes and frees the engine. NULL: no effect. Requests of the engine stay valid; they are final. */
ONESIDED_API void onesided_engine_free(onesided_engine* engine);
/* What peers pass to onesided_connect(), with the port that was chosen. Valid as long as the engine; NULL for NULL. */
ONESIDED_API const char* onesided_engine_id(const onesided_engine* engine);

/* Peers may read and write [address, address + nbytes) until it is deregistered, and transfers of this engine may use
 * it locally. The memory stays the caller's and must stay mapped. The same range again gives the same handle, counted.
 * PARAM_INVALID: empty, wrapping, or another overlap. MISALIGNED: Ascend device memory off its 2 MiB boundaries. */
ONESIDED_API ONESIDED_MUST_CHECK onesided_status onesided_register(onesided_engine* engine, void* address, uint64_t nbytes,
                                                                   onesided_memory_type type,
                                                                   onesided_mem_handle* handle);
/* Refuses the region to everyone, waits until nothing moves in or out of it, forgets it. BUSY: a living peer still uses it
 * after timeout_ms; it stays refused, call again to go on waiting. NOT_FOUND: no such handle. */
ONESIDED_API onesided_status onesided_deregister(onesided_engine* engine, onesided_mem_handle handle, int64_t timeout_ms);

/* ALREADY_CONNECTED, TIMEOUT, NOT_CONNECTED (no engine listens there), AUTH_FAILED, UNSUPPORTED, PARAM_INVALID. */
ONESIDED_API onesided_status onesided_connect(onesided_engine* engine, const char* remote_id, int64_t timeout_ms);
/* Ends transfers in progress with CANCELLED; returns when nothing moves. NOT_CONNECTED. */
ONESIDED_API onesided_status onesided_disconnect(onesided_engine* engine, const char* remote_id);
/* Queues the operation: in order for one remote, in parallel for several. RESOURCE_EXHAUSTED. */
ONESIDED_API onesided_status onesided_connect_async(onesided_engine* engine, const char* remote_id, int64_t timeout_ms);
ONESIDED_API onesided_status onesided_disconnect_async(onesided_engine* engine, const char* remote_id);
/* Of the latest queued operation for that remote. *error, if not NULL, is the cause when it failed, else SUCCESS;
 * onesided_last_error() then has its words. NOT_FOUND: there was none. */
ONESIDED_API onesided_status onesided_async_connect_status(onesided_engine* engine, const char* remote_id,
                                                           onesided_transfer_status* status, onesided_status* error);

/* Moves all items and returns; after an error no byte moves. PARAM_INVALID names the item that is wrong; nothing has
 * moved then. Otherwise the cause that ended the transfer. */
ONESIDED_API ONESIDED_MUST_CHECK onesided_status onesided_transfer_sync(onesided_engine* engine, const char* remote_id,
                                                                        onesided_operation operation,
                                                                        const onesided_item* items, size_t count,
                                                                        int64_t timeout_ms);
/* Copies the list and returns a request, which the caller owns. Errors at submission: nothing has moved. */
ONESIDED_API ONESIDED_MUST_CHECK onesided_status onesided_transfer_async(onesided_engine* engine, const char* remote_id,
                                                                         onesided_operation operation,
                                                                         const onesided_item* items, size_t count,
                                                                         int64_t timeout_ms, onesided_request** request);

ONESIDED_API ONESIDED_MUST_CHECK onesided_status onesided_request_status(const onesided_request* request,
                                                                         onesided_transfer_status* status);
/* Blocks until the status is final and stores it. TIMEOUT: timeout_ms passed first; the transfer goes on. */
ONESIDED_API ONESIDED_MUST_CHECK onesided_status onesided_request_wait(onesided_request* request, int64_t timeout_ms,
                                                                       onesided_transfer_status* status);
/* Ends it early; returns when no byte of it can move. No effect on a final request. */
ONESIDED_API onesided_status onesided_request_cancel(onesided_request* request);
/* The first cause of failure, SUCCESS while there is none; onesided_last_error() then has its words. */
ONESIDED_API onesided_status onesided_request_error(const onesided_request* request);
ONESIDED_API uint64_t onesided_request_bytes_done(const onesided_request* request);
ONESIDED_API uint64_t onesided_request_bytes_total(const onesided_request* request);
/* Stores the results of the first `capacity` items, in the order of submission, and the number of all in *count. */
ONESIDED_API onesided_status onesided_request_items(const onesided_request* request, onesided_item_result* results,
                                                    size_t capacity, size_t* count);
/* Gives the request back; the transfer goes on. NULL: no effect. */
ONESIDED_API void onesided_request_free(onesided_request* request);

/* Writes bytes that name these registered ranges and this engine, for onesided_remote_open() in another process. At most
 * 40 bytes a range and a few hundred. *needed is the length; PARAM_INVALID when `capacity` is less (then nothing is
 * written, and `buffer` may be NULL). */
ONESIDED_API onesided_status onesided_describe(onesided_engine* engine, const onesided_range* ranges, size_t count,
                                               void* buffer, size_t capacity, size_t* needed);
/* Decodes such bytes, whatever they are. The caller owns *remote. PARAM_INVALID: not a description. */
ONESIDED_API ONESIDED_MUST_CHECK onesided_status onesided_remote_open(const void* bytes, size_t nbytes,
                                                                      onesided_remote** remote);
/* The engine that described the ranges, as onesided_connect() takes it. Valid as long as the object; NULL for NULL. */
ONESIDED_API const char* onesided_remote_engine_id(const onesided_remote* remote);
ONESIDED_API size_t onesided_remote_range_count(const onesided_remote* remote);
ONESIDED_API onesided_status onesided_remote_range(const onesided_remote* remote, size_t index, onesided_range* range);
ONESIDED_API void onesided_remote_free(onesided_remote* remote);
/* As onesided_transfer_sync and _async, bound to the registrations that were described: STALE, never other bytes, when
 * one of them has ended or the peer was restarted. */
ONESIDED_API ONESIDED_MUST_CHECK onesided_status
onesided_transfer_bound_sync(onesided_engine* engine, const onesided_remote* remote, onesided_operation operation,
                             const onesided_bound_item* items, size_t count, int64_t timeout_ms);
ONESIDED_API ONESIDED_MUST_CHECK onesided_status onesided_transfer_bound_async(
    onesided_engine* engine, const onesided_remote* remote, onesided_operation operation, const onesided_bound_item* items,
    size_t count, int64_t timeout_ms, onesided_request** request);

/* Hands a named message to the peer's engine and returns when that has it. NOTIFY_FAILED: the peer's queue is full. */
ONESIDED_API onesided_status onesided_send_notification(onesided_engine* engine, const char* remote_id, const char* name,
                                                        const void* message, size_t nbytes, int64_t timeout_ms);
/* Blocks until a notification can be taken. TIMEOUT, CLOSED. */
ONESIDED_API onesided_status onesided_wait_notification(onesided_engine* engine, int64_t timeout_ms);
/* Takes the oldest one, without blocking; the caller owns it. NOT_FOUND: none has come. */
ONESIDED_API ONESIDED_MUST_CHECK onesided_status onesided_take_notification(onesided_engine* engine,
                                                                            onesided_notification** notification);
ONESIDED_API const char* onesided_notification_name(const onesided_notification* notification);
ONESIDED_API const void* onesided_notification_message(const onesided_notification* notification, size_t* nbytes);
ONESIDED_API void onesided_notification_free(onesided_notification* notification);

/* A switch (1 or 0) or a limit; docs/engine.md lists the names. PARAM_INVALID: unknown. */
ONESIDED_API onesided_status onesided_capability(onesided_engine* engine, const char* name, int64_t* value);
/* Counters, and for each peer which transports carried how many bytes and why others were not used, as one JSON object
 * that ends with a zero byte. *needed includes it; PARAM_INVALID when `capacity` is less (then nothing is written). */
ONESIDED_API onesided_status onesided_engine_stats(onesided_engine* engine, char* buffer, size_t capacity, size_t* needed);

/* --------------------------------------------------------------------------------------------------------- memory */

typedef struct onesided_buffer onesided_buffer;
typedef struct onesided_pool onesided_pool;
typedef struct onesided_pool_registration onesided_pool_registration;

/* One range of zeroed host memory that other processes can map (memfd). `alignment` is a power of two; 0: 2 MiB.
 * RESOURCE_EXHAUSTED. */
ONESIDED_API ONESIDED_MUST_CHECK onesided_status onesided_buffer_create(uint64_t nbytes, uint64_t alignment,
                                                                        onesided_buffer** buffer);
ONESIDED_API void* onesided_buffer_address(const onesided_buffer* buffer);
ONESIDED_API uint64_t onesided_buffer_nbytes(const onesided_buffer* buffer);
/* Deregister it first. NULL: no effect. */
ONESIDED_API void onesided_buffer_free(onesided_buffer* buffer);

/* 0 takes the default of a length and means "none" for a limit; docs/aligned_pools.md has the numbers. */
typedef struct onesided_pool_config {
  size_t size;
  const char* device;     /* "host" or "npu:N"; NULL: "host" */
  uint64_t alignment;     /* of every block and every charge; 0: 2 MiB on an NPU, else the page of the host */
  uint64_t segment_bytes; /* step by which a small pool grows */
  uint64_t segment_bytes_max;
  uint64_t max_bytes;
  uint64_t preallocate_bytes;
  double gc_threshold; /* share of max_bytes above which idle segments go back before the pool grows */
} onesided_pool_config;
#define ONESIDED_POOL_CONFIG_INIT {sizeof(onesided_pool_config), NULL, 0, 0, 0, 0, 0, 0.0}

typedef struct onesided_pool_stats {
  size_t size;
  uint64_t allocations;     /* blocks that are held */
  uint64_t segments;        /* ranges that the device gave */
  uint64_t requested_bytes; /* of the held blocks, as requested */
  uint64_t charged_bytes;   /* of the held blocks, as rounded up */
  uint64_t reserved_bytes;  /* of the device */
  uint64_t overhead_bytes;  /* reserved but outside any block */
  uint64_t peak_charged_bytes;
  uint64_t peak_reserved_bytes;
  uint64_t out_of_memory; /* requests that failed */
} onesided_pool_stats;
#define ONESIDED_POOL_STATS_INIT {sizeof(onesided_pool_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0}

/* A growing pool of aligned blocks. "npu:N" needs an Ascend runtime, real or simulated, that is loaded in this process
 * (NOT_FOUND). PARAM_INVALID names the field. */
ONESIDED_API ONESIDED_MUST_CHECK onesided_status onesided_pool_open(const onesided_pool_config* config,
                                                                    onesided_pool** pool);
/* BUSY: blocks are held or a registration is left; nothing changes. NULL: SUCCESS. */
ONESIDED_API onesided_status onesided_pool_free(onesided_pool* pool);
/* `stream` is the device's queue on which the block is used first (aclrtStream; NULL: the default one). *charged_bytes
 * may be NULL. RESOURCE_EXHAUSTED with the pool's numbers. 0 bytes: PARAM_INVALID. */
ONESIDED_API ONESIDED_MUST_CHECK onesided_status onesided_pool_allocate(onesided_pool* pool, uint64_t nbytes, void* stream,
                                                                        void** address, uint64_t* charged_bytes);
/* NOT_FOUND: not the start of a block that is held. */
ONESIDED_API onesided_status onesided_pool_release(onesided_pool* pool, void* address);
/* The block is used on this stream too: it is not reused before that work has ended. */
ONESIDED_API onesided_status onesided_pool_record_stream(onesided_pool* pool, void* address, void* stream);
/* Gives idle segments back until at least `wanted` bytes went; *freed may be NULL. */
ONESIDED_API onesided_status onesided_pool_trim(onesided_pool* pool, uint64_t wanted, uint64_t* freed);
ONESIDED_API onesided_status onesided_pool_get_stats(onesided_pool* pool, onesided_pool_stats* stats);

/* Registers every segment of the pool, now and as it grows, with the engine, and deregisters it before it is given back:
 * blocks come and go without a registration. Engine and pool must outlive the registration. */
ONESIDED_API ONESIDED_MUST_CHECK onesided_status onesided_pool_register(onesided_pool* pool, onesided_engine* engine,
                                                                        onesided_pool_registration** registration);
ONESIDED_API void onesided_pool_registration_free(onesided_pool_registration* registration);

#ifdef __cplusplus
}
#endif

#endif /* ONESIDED_H */
