/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Identifies one run of the kernel and one mount period of a file system: the lifetime of the page cache. */
#include "store/inflight/inflight_parts.h"

#include "base/checksum.h"
#include "base/cleanup.h"
#include "base/io.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* An id that the kernel never reuses, if the kernel (6.8) and the C library support it. */
#ifdef STATX_MNT_ID_UNIQUE
#define MOUNT_ID STATX_MNT_ID_UNIQUE
#else
#define MOUNT_ID 0x4000u
#endif

/* Linux 6.8, and newer than many C libraries; the numbers are equal on all machines that share the numbers of new
 * calls. */
#if !defined(SYS_statmount) && !defined(__alpha__) && !defined(__mips__)
#define SYS_statmount 457
#define SYS_listmount 458
#endif
#define ROOT_OF_ALL UINT64_MAX /* LSMT_ROOT */
#define SB_BASIC 1u            /* STATMOUNT_SB_BASIC */

struct request {
    uint32_t size;
    uint32_t spare;
    uint64_t mount;
    uint64_t param;
};

/* The first fields of struct statmount. */
struct answer {
    uint32_t size;
    uint32_t options;
    uint64_t mask;
    uint32_t major, minor;
    uint64_t rest[62];
};

struct identity {
    char boot[64];
    uint64_t mount;
};

#ifdef SYS_statmount

static bool device_of(uint64_t mount, uint64_t *ret)
{
    struct request request = {.size = sizeof(request), .mount = mount, .param = SB_BASIC};
    struct answer answer = {0};

    if (syscall(SYS_statmount, &request, &answer, sizeof(answer), 0) < 0 || !(answer.mask & SB_BASIC))
        return false;
    *ret = (uint64_t)answer.major << 32 | answer.minor;
    return true;
}

/*
 * A store that was reached below a dead mount may have been opened in a mount namespace that no longer exists
 * (covered.h in the daemon). Its file system is mounted here as well; use the first such mount instead.
 */
static uint64_t mount_here(uint64_t mount, const struct statx *stx)
{
    struct request request = {.size = sizeof(request), .mount = ROOT_OF_ALL};
    uint64_t mounts[64], device, mine = (uint64_t)stx->stx_dev_major << 32 | stx->stx_dev_minor;
    long count;

    if (device_of(mount, &device))
        return mount;
    while ((count = syscall(SYS_listmount, &request, mounts, G_N_ELEMENTS(mounts), 0)) > 0) {
        for (long i = 0; i < count; i++)
            if (device_of(mounts[i], &device) && device == mine)
                return mounts[i];
        request.param = mounts[count - 1];
    }
    return mount;
}

/* The mount through which the store was reached is not recorded, but the present mounts can be tried one by one. */
static bool is_mounted_still(struct identity id, uint64_t boot)
{
    struct request request = {.size = sizeof(request), .mount = ROOT_OF_ALL};
    uint64_t mounts[64], mine, old;
    long count;

    if (!device_of(id.mount, &mine))
        return false;
    while ((count = syscall(SYS_listmount, &request, mounts, G_N_ELEMENTS(mounts), 0)) > 0) {
        for (long i = 0; i < count; i++) {
            id.mount = mounts[i];
            if (wb_checksum(&id, sizeof(id)) == boot)
                return device_of(id.mount, &old) && old == mine;
        }
        request.param = mounts[count - 1];
    }
    return false;
}

#else

static uint64_t mount_here(uint64_t mount, const struct statx *stx)
{
    return mount;
}

static bool is_mounted_still(struct identity id, uint64_t boot)
{
    return false;
}

#endif

static int identity_of(int dir_fd, struct identity *ret)
{
    _cleanup_close_ int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    struct statx stx;
    size_t length = 0;

    *ret = (struct identity){0};
    if (statx(dir_fd, "", AT_EMPTY_PATH, MOUNT_ID, &stx) == 0)
        ret->mount = mount_here(stx.stx_mnt_id, &stx);
    return fd < 0 ? -errno : wb_pread_full(fd, ret->boot, sizeof(ret->boot), 0, &length);
}

uint64_t wb_boot_id(int dir_fd)
{
    struct identity id;

    return identity_of(dir_fd, &id) < 0 ? 0 : wb_checksum(&id, sizeof(id));
}

bool wb_boot_goes_on(int dir_fd, uint64_t boot)
{
    struct identity id;

    if (identity_of(dir_fd, &id) < 0)
        return boot == 0;
    return wb_checksum(&id, sizeof(id)) == boot || is_mounted_still(id, boot);
}
