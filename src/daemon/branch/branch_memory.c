/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/branch/branch_memory.h"

#include "base/io.h"
#include <errno.h>
#include <glib.h>
#include <string.h>

#define GROUP "wayback-branch"

void wb_branch_clear(struct wb_branch *branch)
{
    g_free(branch->source);
    g_free(branch->store);
    *branch = (struct wb_branch){0};
}

/* Paths are bytes, the file is text: escaped as C has it. */
static void set_path(GKeyFile *file, const char *key, const char *path)
{
    g_autofree char *escaped = path ? g_strescape(path, NULL) : NULL;

    if (escaped)
        g_key_file_set_value(file, GROUP, key, escaped);
}

static char *get_path(GKeyFile *file, const char *key)
{
    g_autofree char *escaped = g_key_file_get_value(file, GROUP, key, NULL);

    return escaped ? g_strcompress(escaped) : NULL;
}

int wb_branch_read(const char *dir, struct wb_branch *ret)
{
    g_autoptr(GKeyFile) file = g_key_file_new();
    g_autofree char *path = g_build_filename(dir, WB_BRANCH_FILE, NULL);
    g_autofree char *text = NULL;
    g_autofree char *uuid = NULL;
    g_autofree char *root = NULL;
    g_autoptr(GError) error = NULL;
    gsize length;

    *ret = (struct wb_branch){0};
    if (!g_file_get_contents(path, &text, &length, &error)) {
        if (g_error_matches(error, G_FILE_ERROR, G_FILE_ERROR_NOENT) ||
            g_error_matches(error, G_FILE_ERROR, G_FILE_ERROR_NOTDIR) ||
            g_error_matches(error, G_FILE_ERROR, G_FILE_ERROR_ISDIR))
            return WB_ABSENT;
        return g_error_matches(error, G_FILE_ERROR, G_FILE_ERROR_ACCES) ? -EACCES : -EIO;
    }
    /* Any file may have that name. */
    if (!g_str_has_prefix(text, "[" GROUP "]"))
        return WB_ABSENT;
    if (!g_key_file_load_from_data(file, text, length, G_KEY_FILE_NONE, NULL))
        return -EBADMSG;
    ret->when = g_key_file_get_int64(file, GROUP, "when", NULL);
    ret->made = g_key_file_get_int64(file, GROUP, "made", NULL);
    /* Without these it was made by an older program: what was kept then is taken to have been all. */
    ret->erased = g_key_file_has_key(file, GROUP, "erased", NULL) ? g_key_file_get_int64(file, GROUP, "erased", NULL)
                                                                  : ret->made;
    ret->thinned.files = g_key_file_get_uint64(file, GROUP, "thinned", NULL);
    ret->thinned.sum = g_key_file_get_uint64(file, GROUP, "thinned-sum", NULL);
    ret->source = get_path(file, "source");
    ret->store = get_path(file, "store");
    uuid = g_key_file_get_value(file, GROUP, "uuid", NULL);
    root = g_key_file_get_value(file, GROUP, "root", NULL);
    if (ret->when > 0 && ret->source && uuid && strlen(uuid) == sizeof(ret->uuid) - 1 && root &&
        wb_object_parse(root, &ret->root) == 0) {
        g_strlcpy(ret->uuid, uuid, sizeof(ret->uuid));
        return 0;
    }
    wb_branch_clear(ret);
    return -EBADMSG;
}

int wb_branch_write(int dir_fd, const struct wb_branch *branch)
{
    g_autoptr(GKeyFile) file = g_key_file_new();
    g_autofree char *text = NULL;
    char root[WB_OBJECT_TEXT_MAX];
    gsize length;

    g_key_file_set_int64(file, GROUP, "when", branch->when);
    g_key_file_set_int64(file, GROUP, "made", branch->made);
    g_key_file_set_int64(file, GROUP, "erased", branch->erased);
    g_key_file_set_uint64(file, GROUP, "thinned", branch->thinned.files);
    g_key_file_set_uint64(file, GROUP, "thinned-sum", branch->thinned.sum);
    set_path(file, "source", branch->source);
    set_path(file, "store", branch->store);
    g_key_file_set_value(file, GROUP, "uuid", branch->uuid);
    wb_object_print(branch->root, root);
    g_key_file_set_value(file, GROUP, "root", root);
    text = g_key_file_to_data(file, &length, NULL);
    return wb_replace_file(dir_fd, WB_BRANCH_FILE, text, length, 0600);
}
