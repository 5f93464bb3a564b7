/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/options/config_file.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "format/format.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <string.h>

/* ---- reading --------------------------------------------------------------------------------- */

bool wb_config_file_changed(int store_fd, struct wb_config_stamp *stamp)
{
    struct wb_config_stamp now = {0};
    struct stat st;
    bool same;

    if (fstatat(store_fd, WB_CONFIG_NAME, &st, 0) == 0)
        now = (struct wb_config_stamp){.there = true, .ino = st.st_ino, .size = st.st_size,
                                       .mtime = st.st_mtim, .ctime = st.st_ctim};
    same = now.there == stamp->there && now.ino == stamp->ino && now.size == stamp->size &&
           now.mtime.tv_sec == stamp->mtime.tv_sec && now.mtime.tv_nsec == stamp->mtime.tv_nsec &&
           now.ctime.tv_sec == stamp->ctime.tv_sec && now.ctime.tv_nsec == stamp->ctime.tv_nsec;
    *stamp = now;
    return !same;
}

struct reporter {
    const char *label;
    wb_config_report report;
    void *data;
};

static void report_mistake(const struct wb_config_mistake *mistake, void *data)
{
    const struct reporter *reporter = data;
    g_autofree char *line = g_strdup_printf("%s:%u:%u: %s", reporter->label, mistake->line, mistake->column,
                                            mistake->text);

    reporter->report(line, reporter->data);
}

static int report_whole(const struct reporter *reporter, int error, const char *reason)
{
    g_autofree char *line = g_strdup_printf("%s: %s", reporter->label, reason);

    reporter->report(line, reporter->data);
    return error;
}

int wb_config_file_read(int dir_fd, const char *name, const char *label, struct wb_config *ret,
                        wb_config_report report, void *data)
{
    struct reporter reporter = {label, report, data};
    g_autofree char *text = NULL;
    _cleanup_close_ int fd = -1;
    struct stat st;
    size_t length;
    int r;

    wb_config_init(ret);
    /* Whatever has that name, opening it must not wait. */
    fd = openat(dir_fd, name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return -ENOENT;
    if (fd < 0 || fstat(fd, &st) < 0)
        return report_whole(&reporter, -errno, g_strerror(errno));
    if (!S_ISREG(st.st_mode))
        return report_whole(&reporter, -EINVAL, "not a regular file");
    text = g_try_malloc(WB_CONFIG_SIZE_MAX + 1);
    if (!text)
        return report_whole(&reporter, -ENOMEM, g_strerror(ENOMEM));
    r = wb_pread_full(fd, text, WB_CONFIG_SIZE_MAX + 1, 0, &length);
    if (r < 0)
        return report_whole(&reporter, r, g_strerror(-r));
    if (length > WB_CONFIG_SIZE_MAX)
        return report_whole(&reporter, -EFBIG, "longer than 1 MiB: this is no configuration");
    return wb_config_parse(ret, text, length, report_mistake, &reporter);
}

char *wb_config_file_path(const char *source, const char *store)
{
    return store ? g_build_filename(store, WB_CONFIG_NAME, NULL)
                 : g_build_filename(source, WB_STORE_NAME, WB_CONFIG_NAME, NULL);
}

int wb_config_file_make(int store_fd)
{
    g_autofree char *text = NULL;
    struct stat st;

    if (fstatat(store_fd, WB_CONFIG_NAME, &st, AT_SYMLINK_NOFOLLOW) == 0 || errno != ENOENT)
        return 0;
    text = wb_config_template();
    return wb_replace_file(store_fd, WB_CONFIG_NAME, text, strlen(text), 0600);
}
