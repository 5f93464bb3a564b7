/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "wayback/tree.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "store/directory/signpost.h"
#include "store/identity/identities.h"
#include "store/store.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <stdlib.h>
#include <string.h>

/* Whether `fd` is the root of the tree that the store belongs to: 1, 0 or -errno. */
static int is_root(const struct wb_identities *identities, int fd, struct wb_object root)
{
    struct wb_object inode;
    int r = wb_object_stat(NULL, fd, NULL, &inode, NULL, NULL);

    return r < 0 ? r : wb_identities_is_root(identities, inode, root);
}

static int open_identities(const char *store, struct wb_identities **ret)
{
    _cleanup_close_ int fd = open(store, O_PATH | O_DIRECTORY | O_CLOEXEC);

    *ret = NULL;
    return fd < 0 ? -errno : wb_identities_open(ret, fd);
}

static int read_root(const char *store, struct wb_object *ret, struct wb_error *why)
{
    g_autofree char *path = g_build_filename(store, WB_HEADER_NAME, NULL);
    _cleanup_close_ int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    uint8_t data[WB_HEADER_SIZE];
    struct wb_header header;
    size_t length;
    int r;

    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return wb_error_set(why, -EINVAL, "%s is not a store: it has no header", store);
    if (fd < 0)
        return wb_error_set(why, -errno, "cannot read the store %s: %s", store, g_strerror(errno));
    r = wb_pread_full(fd, data, sizeof(data), 0, &length);
    if (r == 0)
        r = wb_header_decode(data, length, &header);
    if (r == -EPROTONOSUPPORT)
        return wb_error_set(why, r, "the store %s has a newer format; use the newer program", store);
    if (r < 0)
        return wb_error_set(why, r, "the header of the store %s cannot be read", store);
    *ret = header.root;
    return 0;
}

static int tree_of(const char *store, const char *path, char **ret, struct wb_error *why)
{
    g_autofree char *at = g_strdup(path);
    struct wb_object root = WB_OBJECT_NONE;
    struct wb_identities *identities;
    char *slash;
    int r = read_root(store, &root, why);

    if (r < 0)
        return r;
    r = open_identities(store, &identities);
    if (r < 0)
        return wb_error_set(why, r, "the file " WB_IDENTITIES_NAME " of the store %s cannot be read", store);
    for (r = -ENOENT; r == -ENOENT;) {
        _cleanup_close_ int fd = open(*at ? at : "/", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

        if (fd >= 0 && is_root(identities, fd, root) > 0) {
            *ret = strdup(*at ? at : "/");
            r = *ret ? 0 : -ENOMEM;
        }
        slash = strrchr(at, '/');
        if (!slash)
            break;
        *slash = '\0';
    }
    wb_identities_free(identities);
    return r;
}

int wb_tree_of_store(const char *store, const char *path, char **ret, struct wb_error *why)
{
    _cleanup_close_ int fd = open(store, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char link[32];
    int r = fd < 0 ? 0 : wb_signpost_follow(&fd, true, store, why);

    return r < 0 ? r : tree_of(r > 0 ? wb_fd_path(fd, link) : store, path, ret, why);
}
