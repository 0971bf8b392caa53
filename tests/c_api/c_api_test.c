/* The C interface as a C program sees it: two engines in one process, every function, and the mistakes callers make.
 * Prints each check that fails and exits with their number. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "onesided.h"

static int failures = 0;

#define CHECK(condition)                                                                          \
  do {                                                                                            \
    if (!(condition)) {                                                                           \
      ++failures;                                                                                 \
      printf("%s:%d: %s (last error: %s)\n", __FILE__, __LINE__, #condition, onesided_last_error()); \
    }                                                                                             \
  } while (0)
#define EXPECT_STATUS(call, expected)                                                                       \
  do {                                                                                                      \
    const onesided_status got_ = (call);                                                                    \
    if (got_ != (expected)) {                                                                               \
      ++failures;                                                                                           \
      printf("%s:%d: %s is %s, not %s (last error: %s)\n", __FILE__, __LINE__, #call, onesided_status_name(got_), \
             onesided_status_name(expected), onesided_last_error());                                        \
    }                                                                                                       \
  } while (0)

enum { kBytes = 1 << 20 };

/* Two engines, each with one registered buffer; `reader` is connected to `owner`. */
struct pair {
  onesided_engine* owner;
  onesided_engine* reader;
  onesided_buffer* source;
  onesided_buffer* target;
  onesided_mem_handle source_handle;
  onesided_mem_handle target_handle;
};

static unsigned char* bytes_of(onesided_buffer* buffer) { return onesided_buffer_address(buffer); }
static uint64_t number_of(const void* address) { return (uint64_t)(uintptr_t)address; }

static struct pair make_pair(void) {
  struct pair p;
  memset(&p, 0, sizeof p);
  onesided_engine_config config = ONESIDED_ENGINE_CONFIG_INIT;
  config.local_engine = "127.0.0.1:0";
  EXPECT_STATUS(onesided_engine_open(&config, &p.owner), ONESIDED_SUCCESS);
  EXPECT_STATUS(onesided_engine_open(NULL, &p.reader), ONESIDED_SUCCESS);
  EXPECT_STATUS(onesided_buffer_create(kBytes, 0, &p.source), ONESIDED_SUCCESS);
  EXPECT_STATUS(onesided_buffer_create(kBytes, 4096, &p.target), ONESIDED_SUCCESS);
  for (int i = 0; i < kBytes; ++i) bytes_of(p.source)[i] = (unsigned char)(i * 7 + i / 251);
  EXPECT_STATUS(onesided_register(p.owner, bytes_of(p.source), kBytes, ONESIDED_MEMORY_HOST, &p.source_handle),
                ONESIDED_SUCCESS);
  EXPECT_STATUS(onesided_register(p.reader, bytes_of(p.target), kBytes, ONESIDED_MEMORY_HOST, &p.target_handle),
                ONESIDED_SUCCESS);
  EXPECT_STATUS(onesided_connect(p.reader, onesided_engine_id(p.owner), 5000), ONESIDED_SUCCESS);
  return p;
}

static void free_pair(struct pair* p) {
  onesided_engine_free(p->reader);
  onesided_engine_free(p->owner);
  onesided_buffer_free(p->source);
  onesided_buffer_free(p->target);
}

static void test_read_and_write(void) {
  struct pair p = make_pair();
  const char* owner = onesided_engine_id(p.owner);
  const onesided_item whole = {number_of(bytes_of(p.target)), number_of(bytes_of(p.source)), kBytes};
  EXPECT_STATUS(onesided_transfer_sync(p.reader, owner, ONESIDED_READ, &whole, 1, 5000), ONESIDED_SUCCESS);
  CHECK(memcmp(bytes_of(p.target), bytes_of(p.source), kBytes) == 0);

  memset(bytes_of(p.target), 0x5a, 100);
  const onesided_item some = {number_of(bytes_of(p.target)), number_of(bytes_of(p.source)) + 50, 100};
  onesided_request* request = NULL;
  EXPECT_STATUS(onesided_transfer_async(p.reader, owner, ONESIDED_WRITE, &some, 1, ONESIDED_NO_LIMIT, &request),
                ONESIDED_SUCCESS);
  onesided_transfer_status status = ONESIDED_TRANSFER_WAITING;
  EXPECT_STATUS(onesided_request_wait(request, 5000, &status), ONESIDED_SUCCESS);
  CHECK(status == ONESIDED_TRANSFER_COMPLETED);
  CHECK(bytes_of(p.source)[49] == (unsigned char)(49 * 7) && bytes_of(p.source)[50] == 0x5a &&
        bytes_of(p.source)[149] == 0x5a && bytes_of(p.source)[150] == (unsigned char)(150 * 7));
  CHECK(onesided_request_bytes_done(request) == 100 && onesided_request_bytes_total(request) == 100);
  onesided_item_result result = {ONESIDED_FAILED, 0, 0};
  size_t count = 0;
  EXPECT_STATUS(onesided_request_items(request, &result, 1, &count), ONESIDED_SUCCESS);
  CHECK(count == 1 && result.status == ONESIDED_SUCCESS && result.bytes_done == 100);
  EXPECT_STATUS(onesided_request_error(request), ONESIDED_SUCCESS);
  EXPECT_STATUS(onesided_request_cancel(request), ONESIDED_SUCCESS);
  EXPECT_STATUS(onesided_request_status(request, &status), ONESIDED_SUCCESS);
  onesided_engine_free(p.reader); /* a request outlives its engine */
  p.reader = NULL;
  EXPECT_STATUS(onesided_request_status(request, &status), ONESIDED_SUCCESS);
  CHECK(status == ONESIDED_TRANSFER_COMPLETED);
  onesided_request_free(request);
  free_pair(&p);
}

static void test_bound_to_a_description(void) {
  struct pair p = make_pair();
  const onesided_range range = {number_of(bytes_of(p.source)) + 4096, 8192};
  size_t needed = 0;
  EXPECT_STATUS(onesided_describe(p.owner, &range, 1, NULL, 0, &needed), ONESIDED_PARAM_INVALID);
  CHECK(needed > 0 && needed < 1024);
  unsigned char* blob = malloc(needed);
  EXPECT_STATUS(onesided_describe(p.owner, &range, 1, blob, needed, &needed), ONESIDED_SUCCESS);
  onesided_remote* remote = NULL;
  for (size_t cut = 0; cut < needed; ++cut) EXPECT_STATUS(onesided_remote_open(blob, cut, &remote), ONESIDED_PARAM_INVALID);
  CHECK(remote == NULL);
  EXPECT_STATUS(onesided_remote_open(blob, needed, &remote), ONESIDED_SUCCESS);
  free(blob);
  CHECK(strcmp(onesided_remote_engine_id(remote), onesided_engine_id(p.owner)) == 0);
  CHECK(onesided_remote_range_count(remote) == 1);
  onesided_range seen = {0, 0};
  EXPECT_STATUS(onesided_remote_range(remote, 0, &seen), ONESIDED_SUCCESS);
  CHECK(seen.address == range.address && seen.nbytes == range.nbytes);
  EXPECT_STATUS(onesided_remote_range(remote, 1, &seen), ONESIDED_PARAM_INVALID);

  const onesided_bound_item item = {number_of(bytes_of(p.target)), 0, 100, 1000};
  EXPECT_STATUS(onesided_transfer_bound_sync(p.reader, remote, ONESIDED_READ, &item, 1, 5000), ONESIDED_SUCCESS);
  CHECK(memcmp(bytes_of(p.target), bytes_of(p.source) + 4096 + 100, 1000) == 0);
  const onesided_bound_item beyond = {number_of(bytes_of(p.target)), 0, 8000, 193};
  EXPECT_STATUS(onesided_transfer_bound_sync(p.reader, remote, ONESIDED_READ, &beyond, 1, 5000), ONESIDED_PARAM_INVALID);

  EXPECT_STATUS(onesided_deregister(p.owner, p.source_handle, 5000), ONESIDED_SUCCESS);
  EXPECT_STATUS(onesided_register(p.owner, bytes_of(p.source), kBytes, ONESIDED_MEMORY_HOST, &p.source_handle),
                ONESIDED_SUCCESS);
  EXPECT_STATUS(onesided_transfer_bound_sync(p.reader, remote, ONESIDED_READ, &item, 1, 5000), ONESIDED_STALE);
  onesided_request* request = NULL;
  EXPECT_STATUS(onesided_transfer_bound_async(p.reader, remote, ONESIDED_READ, &item, 1, 5000, &request), ONESIDED_SUCCESS);
  onesided_transfer_status status = ONESIDED_TRANSFER_WAITING;
  EXPECT_STATUS(onesided_request_wait(request, 5000, &status), ONESIDED_SUCCESS);
  CHECK(status == ONESIDED_TRANSFER_FAILED);
  EXPECT_STATUS(onesided_request_error(request), ONESIDED_STALE);
  CHECK(strstr(onesided_last_error(), "STALE") != NULL);
  onesided_request_free(request);
  onesided_remote_free(remote);
  free_pair(&p);
}

static void test_notifications(void) {
  struct pair p = make_pair();
  onesided_notification* notification = NULL;
  EXPECT_STATUS(onesided_take_notification(p.owner, &notification), ONESIDED_NOT_FOUND);
  EXPECT_STATUS(onesided_send_notification(p.reader, onesided_engine_id(p.owner), "first", "a\0b", 3, 5000), ONESIDED_SUCCESS);
  EXPECT_STATUS(onesided_send_notification(p.reader, onesided_engine_id(p.owner), "second", NULL, 0, 5000), ONESIDED_SUCCESS);
  EXPECT_STATUS(onesided_wait_notification(p.owner, 5000), ONESIDED_SUCCESS);
  EXPECT_STATUS(onesided_take_notification(p.owner, &notification), ONESIDED_SUCCESS);
  size_t nbytes = 0;
  CHECK(strcmp(onesided_notification_name(notification), "first") == 0);
  CHECK(memcmp(onesided_notification_message(notification, &nbytes), "a\0b", 3) == 0 && nbytes == 3);
  onesided_notification_free(notification);
  EXPECT_STATUS(onesided_wait_notification(p.owner, 5000), ONESIDED_SUCCESS);
  EXPECT_STATUS(onesided_take_notification(p.owner, &notification), ONESIDED_SUCCESS);
  CHECK(strcmp(onesided_notification_name(notification), "second") == 0);
  (void)onesided_notification_message(notification, &nbytes);
  CHECK(nbytes == 0);
  onesided_notification_free(notification);
  EXPECT_STATUS(onesided_wait_notification(p.owner, 1), ONESIDED_TIMEOUT);
  free_pair(&p);
}

static void test_queued_connects(void) {
  struct pair p = make_pair();
  const char* owner = onesided_engine_id(p.owner);
  onesided_transfer_status status = ONESIDED_TRANSFER_WAITING;
  onesided_status error = ONESIDED_SUCCESS;
  EXPECT_STATUS(onesided_async_connect_status(p.reader, owner, &status, &error), ONESIDED_NOT_FOUND);
  EXPECT_STATUS(onesided_disconnect_async(p.reader, owner), ONESIDED_SUCCESS);
  EXPECT_STATUS(onesided_connect_async(p.reader, owner, 5000), ONESIDED_SUCCESS);
  do {
    EXPECT_STATUS(onesided_async_connect_status(p.reader, owner, &status, &error), ONESIDED_SUCCESS);
  } while (status == ONESIDED_TRANSFER_WAITING);
  CHECK(status == ONESIDED_TRANSFER_COMPLETED && error == ONESIDED_SUCCESS);
  EXPECT_STATUS(onesided_connect(p.reader, owner, 5000), ONESIDED_ALREADY_CONNECTED);
  EXPECT_STATUS(onesided_disconnect(p.reader, owner), ONESIDED_SUCCESS);
  EXPECT_STATUS(onesided_disconnect(p.reader, owner), ONESIDED_NOT_CONNECTED);
  free_pair(&p);
}

static void test_stats_and_capabilities(void) {
  struct pair p = make_pair();
  size_t needed = 0;
  EXPECT_STATUS(onesided_engine_stats(p.reader, NULL, 0, &needed), ONESIDED_PARAM_INVALID);
  char* text = malloc(needed + 64);
  EXPECT_STATUS(onesided_engine_stats(p.reader, text, needed + 64, &needed), ONESIDED_SUCCESS);
  CHECK(strlen(text) + 1 == needed && text[0] == '{' && strstr(text, "\"regions\": 1") != NULL);
  CHECK(strstr(text, onesided_engine_id(p.owner)) != NULL);
  free(text);
  int64_t value = 0;
  EXPECT_STATUS(onesided_capability(p.reader, "MAX_NOTIFY_BYTES", &value), ONESIDED_SUCCESS);
  CHECK(value > 0);
  EXPECT_STATUS(onesided_capability(p.reader, "FLIGHT", &value), ONESIDED_PARAM_INVALID);
  CHECK(strstr(onesided_last_error(), "FLIGHT") != NULL);
  free_pair(&p);
}

static void test_pools(void) {
  onesided_pool* pool = NULL;
  onesided_pool_config config = ONESIDED_POOL_CONFIG_INIT;
  config.alignment = 2 << 20;
  config.max_bytes = 64 << 20;
  EXPECT_STATUS(onesided_pool_open(&config, &pool), ONESIDED_SUCCESS);
  struct pair p = make_pair();
  onesided_pool_registration* registration = NULL;
  EXPECT_STATUS(onesided_pool_register(pool, p.owner, &registration), ONESIDED_SUCCESS);
  void* block = NULL;
  uint64_t charged = 0;
  EXPECT_STATUS(onesided_pool_allocate(pool, 100, NULL, &block, &charged), ONESIDED_SUCCESS);
  CHECK(number_of(block) % (2 << 20) == 0 && charged == 2 << 20);
  memset(block, 0x21, 100);
  const onesided_item item = {number_of(bytes_of(p.target)), number_of(block), 100};
  EXPECT_STATUS(onesided_transfer_sync(p.reader, onesided_engine_id(p.owner), ONESIDED_READ, &item, 1, 5000), ONESIDED_SUCCESS);
  CHECK(bytes_of(p.target)[0] == 0x21 && bytes_of(p.target)[99] == 0x21);
  onesided_pool_stats stats = ONESIDED_POOL_STATS_INIT;
  EXPECT_STATUS(onesided_pool_get_stats(pool, &stats), ONESIDED_SUCCESS);
  CHECK(stats.allocations == 1 && stats.requested_bytes == 100 && stats.charged_bytes == 2 << 20);
  EXPECT_STATUS(onesided_pool_record_stream(pool, block, NULL), ONESIDED_SUCCESS);
  void* too_much = &stats;
  EXPECT_STATUS(onesided_pool_allocate(pool, 65 << 20, NULL, &too_much, NULL), ONESIDED_RESOURCE_EXHAUSTED);
  CHECK(too_much == NULL);
  EXPECT_STATUS(onesided_pool_free(pool), ONESIDED_BUSY);
  onesided_pool_registration_free(registration);
  EXPECT_STATUS(onesided_pool_free(pool), ONESIDED_BUSY);
  EXPECT_STATUS(onesided_pool_release(pool, (char*)block + 64), ONESIDED_NOT_FOUND);
  EXPECT_STATUS(onesided_pool_release(pool, block), ONESIDED_SUCCESS);
  EXPECT_STATUS(onesided_pool_release(pool, block), ONESIDED_NOT_FOUND);
  uint64_t freed = 0;
  EXPECT_STATUS(onesided_pool_trim(pool, UINT64_MAX, &freed), ONESIDED_SUCCESS);
  CHECK(freed > 0);
  EXPECT_STATUS(onesided_pool_free(pool), ONESIDED_SUCCESS);
  EXPECT_STATUS(onesided_pool_free(NULL), ONESIDED_SUCCESS);
  free_pair(&p);
}

static void test_a_registration_outlives_its_engine(void) {
  onesided_pool* pool = NULL;
  EXPECT_STATUS(onesided_pool_open(NULL, &pool), ONESIDED_SUCCESS);
  struct pair p = make_pair();
  void* block = NULL;
  EXPECT_STATUS(onesided_pool_allocate(pool, 100, NULL, &block, NULL), ONESIDED_SUCCESS);
  onesided_pool_registration* registration = NULL;
  EXPECT_STATUS(onesided_pool_register(pool, p.owner, &registration), ONESIDED_SUCCESS);
  free_pair(&p);
  EXPECT_STATUS(onesided_pool_release(pool, block), ONESIDED_SUCCESS);
  onesided_pool_registration_free(registration);
  EXPECT_STATUS(onesided_pool_free(pool), ONESIDED_SUCCESS);
}

/* A structure of another version of the interface, and every argument that must not be NULL. */
static void test_mistakes(void) {
  onesided_engine* engine = (onesided_engine*)1;
  onesided_engine_config config = ONESIDED_ENGINE_CONFIG_INIT;
  config.size = sizeof config + 8;
  EXPECT_STATUS(onesided_engine_open(&config, &engine), ONESIDED_PARAM_INVALID);
  CHECK(engine == NULL && strstr(onesided_last_error(), "size") != NULL);
  config.size = 0;
  EXPECT_STATUS(onesided_engine_open(&config, &engine), ONESIDED_PARAM_INVALID);
  config.size = sizeof config.size; /* the first version of all: only defaults */
  EXPECT_STATUS(onesided_engine_open(&config, &engine), ONESIDED_SUCCESS);
  onesided_engine_free(engine);
  config.size = sizeof config;
  const onesided_option unknown[] = {{"speed", "high"}};
  config.options = unknown;
  config.option_count = 1;
  EXPECT_STATUS(onesided_engine_open(&config, &engine), ONESIDED_PARAM_INVALID);
  CHECK(strstr(onesided_last_error(), "speed") != NULL);
  const onesided_option twice[] = {{"tcp_streams", "1"}, {"tcp_streams", "2"}};
  config.options = twice;
  config.option_count = 2;
  EXPECT_STATUS(onesided_engine_open(&config, &engine), ONESIDED_PARAM_INVALID);
  config.options = NULL;
  EXPECT_STATUS(onesided_engine_open(&config, &engine), ONESIDED_PARAM_INVALID);

  struct pair p = make_pair();
  const char* owner = onesided_engine_id(p.owner);
  const onesided_item item = {number_of(bytes_of(p.target)), number_of(bytes_of(p.source)), kBytes + 1};
  EXPECT_STATUS(onesided_transfer_sync(p.reader, owner, ONESIDED_READ, &item, 1, 5000), ONESIDED_PARAM_INVALID);
  EXPECT_STATUS(onesided_transfer_sync(p.reader, owner, 2, &item, 1, 5000), ONESIDED_PARAM_INVALID);
  EXPECT_STATUS(onesided_transfer_sync(p.reader, owner, ONESIDED_READ, NULL, 1, 5000), ONESIDED_PARAM_INVALID);
  EXPECT_STATUS(onesided_transfer_sync(p.reader, owner, ONESIDED_READ, &item, 0, 5000), ONESIDED_PARAM_INVALID);
  EXPECT_STATUS(onesided_transfer_sync(p.reader, NULL, ONESIDED_READ, &item, 1, 5000), ONESIDED_PARAM_INVALID);
  EXPECT_STATUS(onesided_transfer_sync(NULL, owner, ONESIDED_READ, &item, 1, 5000), ONESIDED_PARAM_INVALID);
  EXPECT_STATUS(onesided_transfer_sync(p.reader, owner, ONESIDED_READ, &item, 1, 0), ONESIDED_PARAM_INVALID);
  EXPECT_STATUS(onesided_transfer_sync(p.reader, "127.0.0.1:1", ONESIDED_READ, &item, 1, 5000), ONESIDED_NOT_CONNECTED);
  onesided_mem_handle handle = p.source_handle;
  EXPECT_STATUS(onesided_register(p.owner, NULL, 10, ONESIDED_MEMORY_HOST, &handle), ONESIDED_PARAM_INVALID);
  EXPECT_STATUS(onesided_register(p.owner, bytes_of(p.source) + 1, kBytes - 1, ONESIDED_MEMORY_HOST, &handle), ONESIDED_PARAM_INVALID);
  EXPECT_STATUS(onesided_register(p.owner, bytes_of(p.source), kBytes, 7, &handle), ONESIDED_PARAM_INVALID);
  EXPECT_STATUS(onesided_deregister(p.reader, p.source_handle, 1000), ONESIDED_NOT_FOUND);
  onesided_buffer* buffer = (onesided_buffer*)1;
  EXPECT_STATUS(onesided_buffer_create(0, 0, &buffer), ONESIDED_PARAM_INVALID);
  EXPECT_STATUS(onesided_buffer_create(10, 3, &buffer), ONESIDED_PARAM_INVALID);
  CHECK(buffer == NULL);
  onesided_pool* pool = (onesided_pool*)1;
  onesided_pool_config pool_config = ONESIDED_POOL_CONFIG_INIT;
  const char* devices[] = {"gpu:0", "npu:", "npu:x", "npu:-1", "npu:99999999999"};
  for (size_t i = 0; i < sizeof devices / sizeof *devices; ++i) {
    pool_config.device = devices[i];
    EXPECT_STATUS(onesided_pool_open(&pool_config, &pool), ONESIDED_PARAM_INVALID);
  }
  pool_config.device = "npu:0"; /* no runtime is loaded in this program */
  EXPECT_STATUS(onesided_pool_open(&pool_config, &pool), ONESIDED_NOT_FOUND);
  CHECK(pool == NULL);
  EXPECT_STATUS(onesided_engine_close(p.reader), ONESIDED_SUCCESS);
  EXPECT_STATUS(onesided_connect(p.reader, owner, 1000), ONESIDED_CLOSED);
  EXPECT_STATUS(onesided_engine_close(p.reader), ONESIDED_SUCCESS);
  free_pair(&p);
  onesided_engine_free(NULL);
  onesided_request_free(NULL);
  onesided_buffer_free(NULL);
  onesided_remote_free(NULL);
  onesided_notification_free(NULL);
  onesided_pool_registration_free(NULL);
  CHECK(onesided_engine_id(NULL) == NULL && onesided_request_bytes_done(NULL) == 0);
}

static void test_a_forked_child_is_refused(void) {
  struct pair p = make_pair();
  const pid_t child = fork();
  if (child == 0) _exit(onesided_connect(p.reader, onesided_engine_id(p.owner), 1000) == ONESIDED_CLOSED ? 0 : 1);
  int how = -1;
  CHECK(waitpid(child, &how, 0) == child && WIFEXITED(how) && WEXITSTATUS(how) == 0);
  free_pair(&p);
}

int main(void) {
  CHECK(onesided_abi_version() == ONESIDED_ABI_VERSION);
  CHECK(strcmp(onesided_status_name(ONESIDED_STALE), "STALE") == 0);
  CHECK(strcmp(onesided_status_name(1), "UNKNOWN") == 0);
  CHECK(strchr(onesided_version(), '.') != NULL);
  CHECK(strcmp(onesided_last_error(), "") == 0);
  test_read_and_write();
  test_bound_to_a_description();
  test_notifications();
  test_queued_connects();
  test_stats_and_capabilities();
  test_pools();
  test_a_registration_outlives_its_engine();
  test_mistakes();
  test_a_forked_child_is_refused();
  printf("%d checks failed\n", failures);
  return failures == 0 ? 0 : 1;
}
