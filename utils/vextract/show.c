/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "show.h"
#include "client/copy/copy.h"
#include "client/fd.h"
#include "common/cli.h"
#include "common/table.h"
#include "common/text.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#define MODE_TEXT_MAX 11

int show_content(const struct wb_place *place, int from_dir, const char *from_name, bool dry)
{
    _cleanup_fd_ int from = openat(from_dir, from_name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    int r;

    if (from < 0)
        return wb_cli_fail(place->given, "%s", wb_errno_text(errno));
    if (dry)
        return WB_EXIT_OK;
    r = wb_copy_stream(from, STDOUT_FILENO);
    if (r < 0 && r != -EPIPE && r != -EINTR)
        return wb_cli_fail(place->given, "%s", wb_errno_text(r));
    return r < 0 ? WB_EXIT_FAILED : WB_EXIT_OK;
}

/* "-rw-r--r--", as ls(1) prints it. */
static const char *mode_text(mode_t mode, char text[MODE_TEXT_MAX])
{
    static const struct {
        mode_t type;
        char letter;
    } types[] = {{S_IFDIR, 'd'}, {S_IFLNK, 'l'}, {S_IFIFO, 'p'}, {S_IFSOCK, 's'}, {S_IFCHR, 'c'}, {S_IFBLK, 'b'}};

    g_strlcpy(text, "-rwxrwxrwx", MODE_TEXT_MAX);
    for (unsigned i = 0; i < G_N_ELEMENTS(types); i++)
        if ((mode & S_IFMT) == types[i].type)
            text[0] = types[i].letter;
    for (unsigned i = 0; i < 9; i++)
        if (!(mode & (0400u >> i)))
            text[i + 1] = '-';
    if (mode & S_ISUID)
        text[3] = mode & S_IXUSR ? 's' : 'S';
    if (mode & S_ISGID)
        text[6] = mode & S_IXGRP ? 's' : 'S';
    if (mode & S_ISVTX)
        text[9] = mode & S_IXOTH ? 't' : 'T';
    return text;
}

/* g_free; NULL with errno set. */
static char *target_of(int dir, const char *name)
{
    char target[PATH_MAX];
    ssize_t length = readlinkat(dir, name, target, sizeof(target));

    return length < 0 ? NULL : g_strndup(target, (gsize)length);
}

static char *size_of(const struct stat *st)
{
    if (S_ISREG(st->st_mode))
        return g_strdup_printf("%" G_GINT64_FORMAT, (gint64)st->st_size);
    if (S_ISCHR(st->st_mode) || S_ISBLK(st->st_mode))
        return g_strdup_printf("%u,%u", major(st->st_rdev), minor(st->st_rdev));
    return g_strdup("-");
}

static void add_entry(struct wb_table *table, int dir, const char *name, const struct stat *st)
{
    g_autofree char *target = S_ISLNK(st->st_mode) ? target_of(dir, name) : NULL;
    g_autofree char *whole = target ? g_strconcat(name, " -> ", target, NULL)
                                    : g_strconcat(name, S_ISDIR(st->st_mode) ? "/" : "", NULL);
    g_autofree char *printable = wb_text_printable(whole);
    g_autofree char *size = size_of(st);
    char mode[MODE_TEXT_MAX], time[WB_WHEN_TEXT_MAX];
    const char *cells[] = {mode_text(st->st_mode, mode), wb_text_user(st->st_uid), size,
                           wb_text_time(st->st_mtim.tv_sec * WB_WHEN_SECOND + st->st_mtim.tv_nsec, false, time),
                           printable};

    wb_table_add(table, cells);
}

static int show_directory(const struct wb_place *place, int64_t when, int from_dir, const char *from_name)
{
    static const struct wb_column columns[] = {{"MODE", 0}, {"OWNER", 0}, {"SIZE", 1}, {"MODIFIED", 0}, {"NAME", 0}};
    _cleanup_fd_ int dir = openat(from_dir, from_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    g_autoptr(GPtrArray) names = dir < 0 ? NULL : wb_fd_names(dir);
    g_autofree char *shown = wb_text_printable(place->given);
    struct wb_table *table;
    char time[WB_WHEN_TEXT_MAX];

    if (!names)
        return wb_cli_fail(place->given, "%s", wb_errno_text(errno));
    if (when > 0)
        printf("%s as of %s%s\n", shown, wb_when_print(when, 0, time), names->len == 0 ? ": empty" : "");
    table = wb_table_new(stdout, columns, G_N_ELEMENTS(columns));
    for (guint i = 0; i < names->len && !wb_cli_interrupted(); i++) {
        struct stat st;

        if (fstatat(dir, names->pdata[i], &st, AT_SYMLINK_NOFOLLOW) == 0)
            add_entry(table, dir, names->pdata[i], &st);
        else
            wb_cli_fail(names->pdata[i], "%s", wb_errno_text(errno));
    }
    wb_table_free(table);
    return WB_EXIT_OK;
}

int show_state(const struct wb_place *place, int64_t when, int from_dir, const char *from_name)
{
    g_autofree char *target = NULL;
    struct stat st;

    if (fstatat(from_dir, from_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return wb_cli_fail(place->given, "%s", wb_errno_text(errno));
    if (S_ISREG(st.st_mode))
        return show_content(place, from_dir, from_name, false);
    if (S_ISDIR(st.st_mode))
        return show_directory(place, when, from_dir, from_name);
    if (!S_ISLNK(st.st_mode))
        return wb_cli_fail(place->given, "a %s has no content", wb_text_type(st.st_mode));
    target = target_of(from_dir, from_name);
    if (!target)
        return wb_cli_fail(place->given, "%s", wb_errno_text(errno));
    puts(target);
    return WB_EXIT_OK;
}
