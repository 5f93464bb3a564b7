/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The commands that free what a row counts, as the user can paste them. */
#include "vdf.h"
#include "common/cli.h"
#include "common/text.h"
#include "client/path.h"
#include "wayback/quote.h"
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

/* The tool, with the option that the user gave for the store of a tree that is not mounted. */
static char *called(const char *tool)
{
    g_autofree char *store = wb_cli_store() ? wb_text_shell(wb_cli_store()) : NULL;

    return g_strconcat(wb_cli_tool(tool), store ? " --store " : NULL, store, NULL);
}

/* As the user would write a path below PATH; "": PATH itself. */
static char *written(const struct show_usage *show, const char *path)
{
    g_autofree char *whole = strcmp(show->given, ".") == 0 && *path ? g_strdup(path)
                             : *path ? wb_path_join(show->given, path) : g_strdup(show->given);

    return wb_text_shell(whole);
}

/* 0: there is nothing at that path now, or it cannot be seen. */
static mode_t mode_of(const struct show_usage *show, const char *path)
{
    g_autofree char *inside = *path ? wb_path_join(show->path, path) : g_strdup(show->path);
    struct stat st;

    if (!*inside || fstatat(show->root_fd, inside, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return 0;
    return st.st_mode;
}

char *free_path(const struct show_usage *show, const char *path, bool is_dir)
{
    g_autofree char *word = NULL, *tool = NULL;
    mode_t mode;

    if (!show->may_free)
        return NULL;
    word = written(show, path);
    tool = called(!*path && show->is_root ? "vprune" : "vrm");
    if (!*path && show->is_root)
        return g_strdup_printf("%s --before now %s", tool, word);
    mode = mode_of(show, path);
    return g_strdup_printf("%s%s%s %s", tool, is_dir && (mode == 0 || S_ISDIR(mode)) ? " -r" : "",
                           mode ? " --history" : "", word);
}

char *free_age(const struct show_usage *show, unsigned age)
{
    static const char *const ends[WB_CONTROL_USAGE_AGES] = {"now", "1h", "1d", "7d", "30d", "365d"};
    g_autofree char *word = NULL, *tool = NULL;
    mode_t mode;

    if (!show->may_free)
        return NULL;
    word = written(show, "");
    tool = called(show->is_root ? "vprune" : "vrm");
    if (show->is_root)
        return g_strdup_printf("%s --before %s %s", tool, ends[age], word);
    mode = mode_of(show, "");
    return g_strdup_printf("%s%s --before %s %s", tool, mode && !S_ISDIR(mode) ? "" : " -r", ends[age], word);
}

char *list_program(const struct show_usage *show, const struct wb_control_usage_program *program)
{
    g_autofree char *word = written(show, ""), *user = wb_text_shell(wb_text_user(program->uid));
    g_autofree char *tool = called("vlog"), *name = NULL;

    if (!*program->name)
        return g_strdup_printf("%s --who %s %s", tool, user, word);
    name = wb_quote_word(program->name);
    return g_strdup_printf("%s --who %s --command %s %s", tool, user, name, word);
}
