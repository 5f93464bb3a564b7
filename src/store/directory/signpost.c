/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "store/directory/signpost.h"

#include "base/cleanup.h"
#include "base/io.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <string.h>

/* A longer chain is assumed to be a loop: so many moves are never made before the signposts in between are bypassed. */
#define HOPS_MAX WB_SIGNPOST_PLACES_MAX

int wb_signpost_read(int dir_fd, struct wb_signpost *ret)
{
    _cleanup_close_ int fd = wb_open_own(dir_fd, WB_SIGNPOST_NAME, O_RDONLY, 0);
    uint8_t data[WB_SIGNPOST_SIZE_MAX + 1];
    size_t length;
    int r;

    if (fd < 0)
        return fd == -ENOENT ? 0 : fd;
    r = wb_pread_full(fd, data, sizeof(data), 0, &length);
    if (r == 0)
        r = wb_signpost_decode(data, length, ret);
    return r < 0 ? r : 1;
}

bool wb_signpost_leads_away(int dir_fd)
{
    struct wb_signpost signpost;

    return wb_signpost_read(dir_fd, &signpost) > 0 && signpost.kind == WB_SIGNPOST_LEADS;
}

int wb_signpost_write(int dir_fd, const struct wb_signpost *signpost)
{
    uint8_t data[WB_SIGNPOST_SIZE_MAX];

    return wb_replace_file(dir_fd, WB_SIGNPOST_NAME, data, wb_signpost_encode(signpost, data), 0600);
}

int wb_signpost_remove(int dir_fd)
{
    if (unlinkat(dir_fd, WB_SIGNPOST_NAME, 0) < 0 && errno != ENOENT)
        return -errno;
    return wb_fsync_dir(dir_fd);
}

static int open_path(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    return fd < 0 ? -errno : fd;
}

static bool same_dir(int a_fd, int b_fd)
{
    struct stat a, b;

    return fstat(a_fd, &a) == 0 && fstat(b_fd, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

bool wb_signpost_led(int src_fd, int dir_fd)
{
    _cleanup_close_ int fd = openat(src_fd, WB_STORE_NAME, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    return fd >= 0 && wb_signpost_leads_away(fd) && !same_dir(fd, dir_fd);
}

/* Whether the signpost at the origin of a store leads here: then the move is complete. 1, 0 or -errno. */
static int has_come(int dir_fd, int origin_fd, const struct wb_signpost *coming)
{
    struct wb_signpost there;
    _cleanup_close_ int led_fd = -1;
    int r = wb_signpost_read(origin_fd, &there);

    if (r <= 0 || there.kind != WB_SIGNPOST_LEADS || memcmp(there.uuid, coming->uuid, sizeof(there.uuid)) != 0)
        return r < 0 ? r : 0;
    led_fd = open_path(there.path);
    return led_fd >= 0 && same_dir(led_fd, dir_fd);
}

/* Whether the directory holds the store that the signposts refer to, complete or still arriving. 1, 0 or -errno. */
static int holds(int dir_fd, const char *name, const struct wb_signpost *sought)
{
    _cleanup_close_ int fd = wb_open_own(dir_fd, name, O_RDONLY, 0);
    uint8_t data[WB_HEADER_SIZE];
    struct wb_header header;
    size_t length;
    int r;

    if (fd < 0)
        return fd == -ENOENT ? 0 : fd;
    r = wb_pread_full(fd, data, sizeof(data), 0, &length);
    if (r < 0)
        return r;
    /* The code that opens the store reports a damaged header. */
    return wb_header_decode(data, length, &header) != 0 || memcmp(header.uuid, sought->uuid, sizeof(header.uuid)) == 0;
}

/* Follows one signpost: *ret is the directory that it names, or -1 if the store is here. */
static int step(int dir_fd, const struct wb_signpost *here, int *ret, const char *home, struct wb_error *why)
{
    int fd, r;

    *ret = -1;
    if (here->kind == WB_SIGNPOST_REMAINS)
        return 0;
    fd = open_path(here->path);
    if (fd < 0 && here->kind == WB_SIGNPOST_LEADS)
        return wb_error_set(why, -ENODEV,
                            "%s: the store is in another place, %s, which cannot be opened (%s); mount "
                            "the file system it is on, name its new place with store=DIR, or begin another history "
                            "with wayback --new-history",
                            home, here->path, g_strerror(-fd));
    if (fd < 0)
        return wb_error_set(why, -ENODEV,
                            "the store was being moved here from %s, which cannot be opened (%s), so "
                            "it is unknown which of them is the store; mount the file system of that directory",
                            here->path, g_strerror(-fd));
    r = here->kind == WB_SIGNPOST_COMING ? has_come(dir_fd, fd, here) : 0;
    if (r == 0) {
        *ret = fd;
        return 0;
    }
    close(fd);
    return r < 0 ? wb_error_set(why, r, "the file " WB_SIGNPOST_NAME " in %s cannot be read: %s", here->path,
                                g_strerror(-r))
                 : 0;
}

/* Checks that the end of the chain is the store that the signposts refer to. */
static int check_end(int dir_fd, const struct wb_signpost *sought, bool writable, const char *home,
                     struct wb_error *why)
{
    int r = holds(dir_fd, WB_HEADER_NAME, sought);

    if (r > 0)
        return 1;
    if (r == 0)
        r = holds(dir_fd, WB_ARRIVING_NAME, sought);
    if (r > 0 && writable)
        return 1;
    if (r > 0)
        return wb_error_set(why, -EINPROGRESS,
                            "the move of the store %s was interrupted; mount its tree for "
                            "writing, or run vstore move again, before it is read",
                            home);
    return wb_error_set(why, r < 0 ? r : -ENODEV,
                        "%s: the store is in another place, %s, and not found there (%s); "
                        "mount the file system it is on, name its new place with store=DIR, or begin another "
                        "history with wayback --new-history",
                        home, sought->path, r < 0 ? g_strerror(-r) : "no header of that store is there");
}

int wb_signpost_follow(int *dir_fd, bool writable, const char *home, struct wb_error *why)
{
    struct wb_signpost here, sought;
    int r, next;

    for (unsigned hops = 0;; hops++) {
        r = wb_signpost_read(*dir_fd, &here);
        if (r < 0)
            return wb_error_set(why, r,
                                "the file " WB_SIGNPOST_NAME " in %s, which has the place of the store, "
                                "cannot be read: %s; name the store with store=DIR",
                                home, g_strerror(-r));
        if (r == 0 && hops == 0)
            return 0;
        if (r == 0)
            break;
        if (hops == 0)
            sought = here;
        r = step(*dir_fd, &here, &next, home, why);
        if (r < 0)
            return r;
        if (next < 0)
            break;
        close(*dir_fd);
        *dir_fd = next;
        if (hops >= HOPS_MAX)
            return wb_error_set(why, -ELOOP,
                                "the store %s was moved, and the files " WB_SIGNPOST_NAME
                                " do not lead to it; name the store with store=DIR",
                                home);
    }
    return check_end(*dir_fd, &sought, writable, home, why);
}

/* A damaged header has no id: then the directory must look like a store. */
static bool is_of(int dir_fd, const struct wb_signpost *sought)
{
    struct wb_signpost there;
    struct stat st;

    if (wb_signpost_read(dir_fd, &there) > 0 && memcmp(there.uuid, sought->uuid, sizeof(there.uuid)) == 0)
        return true;
    return (holds(dir_fd, WB_HEADER_NAME, sought) > 0 || holds(dir_fd, WB_ARRIVING_NAME, sought) > 0) &&
           fstatat(dir_fd, WB_OBJECTS_NAME, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

size_t wb_signpost_places(int dir_fd, struct wb_signpost_place ret[WB_SIGNPOST_PLACES_MAX])
{
    struct wb_signpost here, sought = {0};
    size_t n = 0;

    for (int at = dir_fd; n < WB_SIGNPOST_PLACES_MAX && wb_signpost_read(at, &here) > 0; n++) {
        if (here.kind == WB_SIGNPOST_REMAINS)
            break;
        if (n == 0)
            sought = here;
        at = ret[n].fd = open(here.path, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (at < 0)
            break;
        ret[n].belongs = is_of(at, &sought);
    }
    return n;
}
