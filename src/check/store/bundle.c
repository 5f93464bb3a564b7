/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Checks packed content: every file in a bundle can be read, and every file with a name of a bundle is in it. */
#include "check/checking.h"

#include "base/io.h"
#include "store/graveyard/bundle.h"
#include <errno.h>
#include <fcntl.h>

static void lost(struct wb_checking *checking, const char *path, const char *text)
{
    struct wb_check_where where = {.file = path};

    wb_check_report(checking, WB_CHECK_LOST, "damaged-bundle", where, NULL, "%s", text);
}

static gint compare(gconstpointer a, gconstpointer b, gpointer data)
{
    const struct wb_bundle *bundle = data;
    const struct wb_bundle_member *x = *(const struct wb_bundle_member *const *)a;
    const struct wb_bundle_member *y = *(const struct wb_bundle_member *const *)b;
    uint64_t left = x->count > 0 ? bundle->extents[x->first].at : 0;
    uint64_t right = y->count > 0 ? bundle->extents[y->first].at : 0;

    return left < right ? -1 : left > right;
}

/* 0, -EBADMSG, or -errno. */
static int read_member(struct wb_checking *checking, const struct wb_bundle *bundle,
                       const struct wb_bundle_member *member)
{
    uint64_t offset = 0, step;
    int r = 0;

    for (; r == 0 && offset < member->size; offset += step) {
        step = MIN(member->size - offset, (uint64_t)WB_PAYLOAD_MAX);
        r = wb_bundle_read(bundle, member, checking->payload, step, offset);
        if (r == 0 && !wb_check_progress(checking, 0, step))
            return -ECANCELED;
    }
    return r;
}

/* Each chunk once: in the order in which they are packed. */
static int read_all(struct wb_checking *checking, struct wb_bundle *bundle)
{
    g_autoptr(GPtrArray) members = g_ptr_array_new();
    int r = 0;

    for (uint32_t i = 0; i < bundle->count; i++)
        g_ptr_array_add(members, &bundle->members[i]);
    g_ptr_array_sort_with_data(members, compare, bundle);
    for (guint i = 0; r == 0 && i < members->len; i++) {
        const struct wb_bundle_member *member = members->pdata[i];
        char path[WB_OBJECT_PATH_MAX];

        r = read_member(checking, bundle, member);
        if (r != -EBADMSG)
            continue;
        wb_object_path(member->object, WB_FILE_BUNDLE, path);
        lost(checking, path, "the packed content of a deleted file is damaged; reading it is refused");
        r = 0;
    }
    return r;
}

static bool is_new(struct wb_checking *checking, const struct wb_bundle *bundle)
{
    struct stat st;
    guint64 ino;

    if (fstat(bundle->fd, &st) < 0)
        return true;
    ino = st.st_ino;
    if (!checking->bundles)
        checking->bundles = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);
    return g_hash_table_add(checking->bundles, g_memdup2(&ino, sizeof(ino)));
}

int wb_check_bundle(struct wb_checking *checking, const char *path, struct wb_object object, bool needed)
{
    struct wb_check_where where = {.file = path};
    struct wb_bundle *bundle;
    int fd = wb_open_own(checking->dir_fd, path, O_RDONLY, 0), r;

    if (fd < 0)
        return fd == -ENOENT ? 0 : fd;
    r = wb_bundle_open_fd(fd, &bundle);
    if (r == -EBADMSG) {
        lost(checking, path,
             needed ? "not a bundle, or its index is damaged; reading the deleted file packed in it is refused"
                    : "not a bundle, or its index is damaged");
        return 0;
    }
    if (r < 0)
        return r;
    if (!wb_bundle_find(bundle, object))
        lost(checking, path, "the content of a deleted file is missing in its bundle; reading it is refused");
    if (is_new(checking, bundle)) {
        if (bundle->bytes.second)
            wb_check_report(checking, WB_CHECK_NOTE, "damaged-pack", where, NULL,
                            "the head of the packed data is damaged; its copy is used");
        r = read_all(checking, bundle);
    }
    wb_bundle_free(bundle);
    return r;
}
