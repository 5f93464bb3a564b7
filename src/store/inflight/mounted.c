/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Identifies one run of the kernel and one mount period of a file system: the lifetime of the page cache. */
#include "store/inflight/inflight_parts.h"
#include "store/inflight/mounted.h"

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

#define IDS_MAX 64

/* What wb_mounted_note has read: the directories, and all mounts in ascending order of their ids. */
struct place {
    uint64_t device, ino, mount;
};
struct mount {
    uint64_t id, device;
};
static struct {
    struct place places[WB_MOUNTED_NOTES_MAX];
    unsigned count;
    GArray *mounts;
} noted;

static uint64_t stx_device(const struct statx *stx)
{
    return (uint64_t)stx->stx_dev_major << 32 | stx->stx_dev_minor;
}

#ifdef SYS_statmount

static bool device_of(uint64_t mount, uint64_t *ret)
{
    struct request request = {.size = sizeof(request), .mount = mount, .param = SB_BASIC};
    struct answer answer = {0};

    for (guint i = 0; noted.mounts && i < noted.mounts->len; i++) {
        const struct mount *at = &g_array_index(noted.mounts, struct mount, i);

        if (at->id == mount) {
            *ret = at->device;
            return true;
        }
    }
    if (syscall(SYS_statmount, &request, &answer, sizeof(answer), 0) < 0 || !(answer.mask & SB_BASIC))
        return false;
    *ret = (uint64_t)answer.major << 32 | answer.minor;
    return true;
}

/* The next ids of mounts after this one: of those that were noted, or of the present ones. */
static long list_mounts(uint64_t after, uint64_t ids[IDS_MAX])
{
    struct request request = {.size = sizeof(request), .mount = ROOT_OF_ALL, .param = after};
    long count = 0;

    if (!noted.mounts)
        return syscall(SYS_listmount, &request, ids, (size_t)IDS_MAX, 0);
    for (guint i = 0; i < noted.mounts->len && count < IDS_MAX; i++)
        if (g_array_index(noted.mounts, struct mount, i).id > after)
            ids[count++] = g_array_index(noted.mounts, struct mount, i).id;
    return count;
}

static void note_mounts(void)
{
    GArray *mounts = g_array_new(FALSE, FALSE, sizeof(struct mount));
    uint64_t ids[IDS_MAX];
    struct mount at = {0};
    long count;

    while ((count = list_mounts(at.id, ids)) > 0)
        for (long i = 0; i < count; i++) {
            at.id = ids[i];
            if (device_of(at.id, &at.device))
                g_array_append_val(mounts, at);
        }
    noted.mounts = mounts;
}

/*
 * A store that was reached below a dead mount may have been opened in a mount namespace that no longer exists
 * (covered.h in the daemon). Its file system is mounted here as well; use the first such mount instead.
 */
static uint64_t mount_here(uint64_t mount, const struct statx *stx)
{
    uint64_t ids[IDS_MAX], device, after = 0;
    long count;

    if (device_of(mount, &device))
        return mount;
    while ((count = list_mounts(after, ids)) > 0) {
        for (long i = 0; i < count; i++)
            if (device_of(ids[i], &device) && device == stx_device(stx))
                return ids[i];
        after = ids[count - 1];
    }
    return mount;
}

/* The mount through which the store was reached is not recorded, but the present mounts can be tried one by one. */
static bool is_mounted_still(struct identity id, uint64_t boot)
{
    uint64_t ids[IDS_MAX], mine, old, after = 0;
    long count;

    if (!device_of(id.mount, &mine))
        return false;
    while ((count = list_mounts(after, ids)) > 0) {
        for (long i = 0; i < count; i++) {
            id.mount = ids[i];
            if (wb_checksum(&id, sizeof(id)) == boot)
                return device_of(id.mount, &old) && old == mine;
        }
        after = ids[count - 1];
    }
    return false;
}

#else

static void note_mounts(void)
{
}

static uint64_t mount_here(uint64_t mount, const struct statx *stx)
{
    return mount;
}

static bool is_mounted_still(struct identity id, uint64_t boot)
{
    return false;
}

#endif

void wb_mounted_note(int dir_fd)
{
    struct statx stx;

    if (noted.count == WB_MOUNTED_NOTES_MAX || statx(dir_fd, "", AT_EMPTY_PATH, STATX_INO | MOUNT_ID, &stx) < 0)
        return;
    noted.places[noted.count++] =
        (struct place){stx_device(&stx), stx.stx_ino, mount_here(stx.stx_mnt_id, &stx)};
    if (!noted.mounts)
        note_mounts();
    wb_store_dir_note_ordered(dir_fd);
}

/* The directory itself if it was noted, otherwise the last one of that file system. */
static const struct place *find_noted(const struct statx *stx)
{
    const struct place *found = NULL;

    for (unsigned i = 0; i < noted.count; i++) {
        const struct place *at = &noted.places[i];

        if (at->device != stx_device(stx))
            continue;
        found = at;
        if (at->ino == stx->stx_ino)
            break;
    }
    return found;
}

static int identity_of(int dir_fd, struct identity *ret)
{
    _cleanup_close_ int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    struct statx stx;
    size_t length = 0;

    *ret = (struct identity){0};
    if (statx(dir_fd, "", AT_EMPTY_PATH, STATX_INO | MOUNT_ID, &stx) == 0) {
        const struct place *place = find_noted(&stx);

        ret->mount = place ? place->mount : mount_here(stx.stx_mnt_id, &stx);
    }
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
