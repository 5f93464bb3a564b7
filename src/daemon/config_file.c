/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/config_file.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "format/format.h"
#include "wayback/control.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <inttypes.h>
#include <stdio.h>
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

struct teller {
    const char *label;
    wb_config_tell tell;
    void *data;
};

static void tell_mistake(const struct wb_config_mistake *mistake, void *data)
{
    const struct teller *teller = data;
    g_autofree char *line = g_strdup_printf("%s:%u:%u: %s", teller->label, mistake->line, mistake->column,
                                            mistake->text);

    teller->tell(line, teller->data);
}

static int tell_whole(const struct teller *teller, int error, const char *reason)
{
    g_autofree char *line = g_strdup_printf("%s: %s", teller->label, reason);

    teller->tell(line, teller->data);
    return error;
}

int wb_config_file_read(int dir_fd, const char *name, const char *label, struct wb_config *ret,
                        wb_config_tell tell, void *data)
{
    struct teller teller = {label, tell, data};
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
        return tell_whole(&teller, -errno, g_strerror(errno));
    if (!S_ISREG(st.st_mode))
        return tell_whole(&teller, -EINVAL, "not a regular file");
    text = g_try_malloc(WB_CONFIG_SIZE_MAX + 1);
    if (!text)
        return tell_whole(&teller, -ENOMEM, g_strerror(ENOMEM));
    r = wb_pread_full(fd, text, WB_CONFIG_SIZE_MAX + 1, 0, &length);
    if (r < 0)
        return tell_whole(&teller, r, g_strerror(-r));
    if (length > WB_CONFIG_SIZE_MAX)
        return tell_whole(&teller, -EFBIG, "longer than 1 MiB: this is no configuration");
    return wb_config_parse(ret, text, length, tell_mistake, &teller);
}

int wb_config_file_make(int store_fd)
{
    struct stat st;

    if (fstatat(store_fd, WB_CONFIG_NAME, &st, AT_SYMLINK_NOFOLLOW) == 0 || errno != ENOENT)
        return 0;
    return wb_replace_file(store_fd, WB_CONFIG_NAME, wb_config_template, strlen(wb_config_template), 0600);
}

/* ---- where it is ----------------------------------------------------------------------------- */

/* A mount may cover its own SRC: then the daemon's descriptors lead there. */
static char *path_below(const char *path)
{
    _cleanup_close_ int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    g_autofree struct wb_control *control = g_new0(struct wb_control, 1);
    const struct wb_control_hello *hello = (const void *)control->data;

    control->version = WB_CONTROL_VERSION;
    control->command = WB_CONTROL_HELLO;
    if (fd < 0 || ioctl(fd, WB_CONTROL_IOCTL, control) < 0 || wb_control_check(WB_CONTROL_HELLO, 0, control) < 0)
        return NULL;
    if (hello->store_fd >= 0)
        return g_strdup_printf("/proc/%" PRIu32 "/fd/%" PRId32 "/" WB_CONFIG_NAME, hello->pid, hello->store_fd);
    return g_strdup_printf("/proc/%" PRIu32 "/fd/%" PRId32 "/" WB_STORE_NAME "/" WB_CONFIG_NAME, hello->pid,
                           hello->source_fd);
}

/* Of a tree, a mount, a store, or the file itself. g_free. */
static char *find(const struct wb_options *options)
{
    char *below;
    struct stat st;

    if (options->store)
        return g_build_filename(options->store, WB_CONFIG_NAME, NULL);
    if (stat(options->source, &st) < 0 || !S_ISDIR(st.st_mode))
        return g_strdup(options->source);
    below = path_below(options->source);
    if (below)
        return below;
    return g_build_filename(options->source, WB_STORE_NAME, WB_CONFIG_NAME, NULL);
}

/* ---- the command line ------------------------------------------------------------------------ */

enum { EXIT_DONE = 0, EXIT_FAILED = 1 };

static void print_mistake(const char *line, void *data)
{
    fprintf(stderr, "%s\n", line);
}

static void print_meaning(const struct wb_schedule *schedule)
{
    bool any = false;

    for (enum wb_period period = WB_HOURLY; period < WB_PERIODS; period++) {
        if (!schedule->periods[period].set)
            continue;
        any = true;
        printf("snapshots: %s", wb_period_name(period));
        if (period != WB_HOURLY)
            printf(" at %02u:%02u", schedule->at / 60, schedule->at % 60);
        printf(", the newest %u\n", schedule->periods[period].keep);
    }
    if (schedule->periods[WB_EVERY].set)
        printf("snapshots: every %u s, the newest %u\n", schedule->every, schedule->periods[WB_EVERY].keep);
    else if (!any)
        printf("snapshots: none by themselves\n");
}

static void print_compaction(const struct wb_compaction *compaction)
{
    if (compaction->method == WB_COMPACTION_NONE)
        printf("history: not packed by itself\n");
    else
        printf("history: packed where nothing changed for %u s\n", compaction->rest);
}

int wb_config_check(const struct wb_options *options)
{
    g_autofree char *path = find(options);
    struct wb_config config;
    int r = wb_config_file_read(AT_FDCWD, path, path, &config, print_mistake, NULL);

    if (r == -ENOENT)
        fprintf(stderr, "wayback: %s: there is no such file, so nothing is set\n", path);
    if (r < 0)
        return EXIT_FAILED;
    printf("%s: no mistake\n", path);
    print_meaning(&config.snapshots);
    print_compaction(&config.compaction);
    return EXIT_DONE;
}

int wb_config_path(const struct wb_options *options)
{
    g_autofree char *path = find(options);

    printf("%s\n", path);
    return EXIT_DONE;
}
