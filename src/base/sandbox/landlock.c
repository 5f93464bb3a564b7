/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* C libraries have no functions for this, and their headers may be older than the kernel that runs. */
#include "base/sandbox/landlock.h"

#include "base/cleanup.h"
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NEW_landlock_create_ruleset 444
#define NEW_landlock_add_rule 445
#define NEW_landlock_restrict_self 446

#define CREATE_VERSION 1u
#define RULE_PATH_BENEATH 1

#define EXECUTE (UINT64_C(1) << 0)
#define WRITE_FILE (UINT64_C(1) << 1)
#define READ_FILE (UINT64_C(1) << 2)
#define READ_DIR (UINT64_C(1) << 3)
#define REFER (UINT64_C(1) << 13)
#define TRUNCATE (UINT64_C(1) << 14)
#define IOCTL_DEV (UINT64_C(1) << 15)

#define VERSION_REFER 2
#define VERSION_TRUNCATE 3
#define VERSION_IOCTL_DEV 5

struct ruleset {
    uint64_t handled;
};

struct path_beneath {
    uint64_t allowed;
    int32_t parent;
} __attribute__((packed));

/* The rights that a kernel of this version of Landlock supports; each version has those of the versions before it. */
static uint64_t known_by(long version)
{
    uint64_t known = (REFER << 1) - 1;

    if (version >= VERSION_TRUNCATE)
        known |= TRUNCATE;
    if (version >= VERSION_IOCTL_DEV)
        known |= IOCTL_DEV;
    return known;
}

static uint64_t allowed_by(enum wb_landlock_access access)
{
    switch (access) {
    case WB_LANDLOCK_LIST:
        return READ_DIR;
    case WB_LANDLOCK_READ:
        return READ_FILE | READ_DIR;
    case WB_LANDLOCK_PROGRAM:
        return READ_FILE | READ_DIR | EXECUTE;
    case WB_LANDLOCK_DEVICE:
        return READ_FILE | WRITE_FILE | TRUNCATE | IOCTL_DEV;
    default:
        return ~(EXECUTE | IOCTL_DEV);
    }
}

static int add(int ruleset, const struct wb_landlock_place *place, uint64_t known)
{
    struct path_beneath rule = {.allowed = allowed_by(place->access) & known, .parent = place->fd};
    struct stat st;

    if (place->fd < 0)
        return 0;
    if (fstat(place->fd, &st) < 0)
        return -errno;
    if (!S_ISDIR(st.st_mode))
        rule.allowed &= EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV;
    if (syscall(NEW_landlock_add_rule, ruleset, RULE_PATH_BENEATH, &rule, 0) == 0)
        return 0;
    /* Pipes and the like are in no place, and always allowed. */
    return errno == EBADFD ? 0 : -errno;
}

int wb_landlock_enter(const struct wb_landlock_place *places, size_t count)
{
    long version = syscall(NEW_landlock_create_ruleset, NULL, (size_t)0, CREATE_VERSION);
    uint64_t known = known_by(version);
    struct ruleset all = {.handled = known};
    _cleanup_close_ int ruleset = -1;
    int r = 0;

    if (version < VERSION_REFER)
        return -EOPNOTSUPP;
    ruleset = (int)syscall(NEW_landlock_create_ruleset, &all, sizeof(all), 0);
    if (ruleset < 0)
        return -errno;
    for (size_t i = 0; r == 0 && i < count; i++)
        r = add(ruleset, &places[i], known);
    if (r == 0 && syscall(NEW_landlock_restrict_self, ruleset, 0) < 0)
        r = -errno;
    return r;
}
