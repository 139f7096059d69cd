// LD_PRELOAD shim: input and output fail as on a bad disk or a full one.
//
//   BROKEN_CALL   write, fsync, rename, copy_file_range, preadv, read
//   BROKEN_AFTER  so many calls work first
//   BROKEN_ERRNO  the error (5 is EIO, 28 ENOSPC)
//   BROKEN_SHORT  set: a failing write first writes half of what it was given
//
// Only calls on regular files fail, so that the interpreter's own pipes and terminals work on.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static int regular(int fd) {
  struct stat status;
  return fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
}

static int broken(const char *call) {
  static long calls;
  const char *wanted = getenv("BROKEN_CALL");
  const char *after = getenv("BROKEN_AFTER");
  if (!wanted || strcmp(wanted, call) != 0 || calls++ < (after ? atol(after) : 0)) return 0;
  const char *number = getenv("BROKEN_ERRNO");
  errno = number ? atoi(number) : EIO;
  return 1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int fd, const void *data, size_t size) {
  if (regular(fd) && broken("write")) {
    const int error = errno;
    static int halved;
    if (getenv("BROKEN_SHORT") && size > 1 && !halved++) return REAL(write)(fd, data, size / 2);
    errno = error;
    return -1;
  }
  return REAL(write)(fd, data, size);
}

ssize_t read(int fd, void *data, size_t size) {
  return regular(fd) && broken("read") ? -1 : REAL(read)(fd, data, size);
}

int fsync(int fd) { return regular(fd) && broken("fsync") ? -1 : REAL(fsync)(fd); }

int rename(const char *from, const char *to) { return broken("rename") ? -1 : REAL(rename)(from, to); }

ssize_t copy_file_range(int in, off64_t *at, int out, off64_t *to, size_t size, unsigned flags) {
  return broken("copy_file_range") ? -1 : REAL(copy_file_range)(in, at, out, to, size, flags);
}

// Python's os.preadv calls one of these two.
ssize_t preadv64(int fd, const struct iovec *buffers, int count, off64_t at) {
  return broken("preadv") ? -1 : REAL(preadv64)(fd, buffers, count, at);
}

ssize_t preadv64v2(int fd, const struct iovec *buffers, int count, off64_t at, int flags) {
  return broken("preadv") ? -1 : REAL(preadv64v2)(fd, buffers, count, at, flags);
}
