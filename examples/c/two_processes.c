/* One process owns a buffer; another, its child here, reads it without any help of the owner's program.
 *
 *   cc two_processes.c $(pkg-config --cflags --libs onesided) -o two_processes && ./two_processes
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "onesided.h"

enum { kBytes = 16 << 20, kMaxDescription = 1024 };

static void require(onesided_status status, const char* what) {
  if (status == ONESIDED_SUCCESS) return;
  fprintf(stderr, "%s: %s\n", what, onesided_last_error());
  exit(1);
}

/* Describes a registered buffer to the process at the other end of the pipe and waits until that has read it. */
static void own(int to_reader, pid_t reader) {
  onesided_engine* engine = NULL;
  onesided_buffer* buffer = NULL;
  onesided_mem_handle handle;
  require(onesided_engine_open(NULL, &engine), "open the owner's engine");
  require(onesided_buffer_create(kBytes, 0, &buffer), "allocate the source");
  memset(onesided_buffer_address(buffer), 42, kBytes);
  require(onesided_register(engine, onesided_buffer_address(buffer), kBytes, ONESIDED_MEMORY_HOST, &handle), "register");

  const onesided_range range = {(uint64_t)(uintptr_t)onesided_buffer_address(buffer), kBytes};
  char description[kMaxDescription];
  size_t length = 0;
  require(onesided_describe(engine, &range, 1, description, sizeof description, &length), "describe");
  if (write(to_reader, description, length) != (ssize_t)length) exit(1);
  close(to_reader);

  int how = 0;
  waitpid(reader, &how, 0);
  require(onesided_deregister(engine, handle, ONESIDED_DEFAULT_TIMEOUT_MS), "deregister");
  onesided_engine_free(engine);
  onesided_buffer_free(buffer);
  exit(WIFEXITED(how) ? WEXITSTATUS(how) : 1);
}

static void read_from(int from_owner) {
  char description[kMaxDescription];
  size_t length = 0;
  for (ssize_t got; (got = read(from_owner, description + length, sizeof description - length)) > 0;) length += (size_t)got;

  onesided_engine* engine = NULL;
  onesided_buffer* buffer = NULL;
  onesided_remote* remote = NULL;
  onesided_mem_handle handle;
  require(onesided_engine_open(NULL, &engine), "open the reader's engine");
  require(onesided_buffer_create(kBytes, 0, &buffer), "allocate the target");
  require(onesided_register(engine, onesided_buffer_address(buffer), kBytes, ONESIDED_MEMORY_HOST, &handle), "register");
  require(onesided_remote_open(description, length, &remote), "decode the description");
  require(onesided_connect(engine, onesided_remote_engine_id(remote), 5000), "connect");

  const onesided_bound_item item = {(uint64_t)(uintptr_t)onesided_buffer_address(buffer), 0, 0, kBytes};
  require(onesided_transfer_bound_sync(engine, remote, ONESIDED_READ, &item, 1, 5000), "read");
  const unsigned char* bytes = onesided_buffer_address(buffer);
  for (size_t i = 0; i < kBytes; ++i)
    if (bytes[i] != 42) exit(1);
  printf("read %d bytes from %s\n", kBytes, onesided_remote_engine_id(remote));

  onesided_remote_free(remote);
  onesided_engine_free(engine);
  onesided_buffer_free(buffer);
}

int main(void) {
  int ends[2];
  if (pipe(ends) != 0) return 1;
  const pid_t reader = fork(); /* before any engine: engines do not survive a fork */
  if (reader < 0) return 1;
  if (reader > 0) {
    close(ends[0]);
    own(ends[1], reader);
  }
  close(ends[1]);
  read_from(ends[0]);
  return 0;
}
