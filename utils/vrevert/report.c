/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "revert.h"
#include "common/cli.h"
#include "common/path.h"
#include "common/progress.h"
#include "common/text.h"
#include <errno.h>
#include <string.h>

static const struct {
    const char *name;     /* of one action */
    const char *one, *many; /* in the summary */
} words[REVERT_ACTIONS] = {
    [REVERT_RESTORE] = {"restore", "restored", "restored"},
    [REVERT_RENAME] = {"rename", "renamed back", "renamed back"},
    [REVERT_LINK] = {"link", "linked", "linked"},
    [REVERT_COPY] = {"copy", "copied", "copied"},
    [REVERT_REWRITE] = {"rewrite", "file rewritten", "files rewritten"},
    [REVERT_SET] = {"set", "with attributes set", "with attributes set"},
    [REVERT_BREAK] = {"break", "link broken", "links broken"},
    [REVERT_REMOVE] = {"remove", "removed", "removed"},
};

char *revert_shown(const struct revert *revert, const char *path)
{
    const struct wb_place *place = revert->place;
    const char *rest;

    if (wb_path_below(path, place->path, &rest))
        return wb_path_join(place->given, rest);
    return wb_path_join(place->mount->private ? place->mount->hello.source : place->mount->point, path);
}

static void report_json(struct revert *revert, enum revert_action action, const char *shown,
                        const char *other, uint64_t bytes)
{
    uint64_t before = 0;

    for (int i = 0; i < REVERT_ACTIONS; i++)
        before += revert->counts[i];
    fputs(before > 1 ? ",\n  " : "\n  ", stdout);
    json_builder_begin_object(revert->builder);
    wb_json_string(revert->builder, "action", words[action].name);
    wb_json_string(revert->builder, "path", shown);
    if (other)
        wb_json_string(revert->builder, "from", other);
    if (bytes > 0)
        wb_json_int(revert->builder, "bytes", (int64_t)bytes);
    json_builder_end_object(revert->builder);
    wb_json_print(stdout, revert->builder);
}

/* A path below something put aside, as it was called before. */
static char *own_name(const struct revert *revert, const char *path)
{
    GHashTableIter iter;
    void *aside, *name;
    const char *rest;

    g_hash_table_iter_init(&iter, revert->aside_of);
    while (g_hash_table_iter_next(&iter, &aside, &name)) {
        if (wb_path_below(path, aside, &rest))
            return wb_path_join(name, rest);
    }
    return g_strdup(path);
}

void revert_report(struct revert *revert, enum revert_action action, const char *path, const char *other,
                   uint64_t bytes)
{
    g_autofree char *shown = revert_shown(revert, path);
    g_autofree char *own = other ? own_name(revert, other) : NULL;
    g_autofree char *from = own ? revert_shown(revert, own) : NULL;
    char size[WB_TEXT_SIZE_MAX];

    revert->counts[action]++;
    revert->bytes += bytes;
    if (revert->json) {
        report_json(revert, action, shown, from, bytes);
    } else if (revert->verbose) {
        g_autofree char *name = wb_text_printable(shown);
        g_autofree char *source = from ? wb_text_printable(from) : NULL;

        wb_progress_clear();
        printf("%-8s %s%s%s", words[action].name, name, source ? "  from " : "", source ? source : "");
        if (bytes > 0)
            printf("  (%s)", wb_text_size(bytes, size));
        putchar('\n');
    }
}

void revert_report_break(struct revert *revert, const char *path, const char *other, uint64_t bytes)
{
    g_autofree char *shown = revert_shown(revert, path);
    g_autofree char *name = wb_text_printable(shown);
    g_autofree char *keeper = other ? revert_shown(revert, other) : NULL;
    g_autofree char *keeper_name = keeper ? wb_text_printable(keeper) : NULL;
    const char *would = revert->dry ? "would " : "";

    revert->counts[REVERT_BREAK]++;
    revert->bytes += bytes;
    if (revert->json) {
        report_json(revert, REVERT_BREAK, shown, keeper, bytes);
        return;
    }
    wb_progress_clear();
    if (keeper_name)
        printf("%s: link %sbroken; %s %s its content\n", name, revert->dry ? "would be " : "", keeper_name,
               revert->dry ? "would keep" : "keeps");
    else
        printf("%s: link %sbroken; its other names %skeep their content\n", name, revert->dry ? "would be " : "",
               would);
}

void revert_report_shared(struct revert *revert, const char *path)
{
    g_autofree char *shown = revert_shown(revert, path);
    g_autofree char *name = wb_text_printable(shown);

    if (revert->json)
        return;
    wb_progress_clear();
    printf("%s: its other names %s with it (--all-links)\n", name, revert->dry ? "would change" : "changed");
}

int revert_fail(struct revert *revert, const char *path, const char *what, int error)
{
    g_autofree char *shown = revert_shown(revert, path);

    wb_progress_clear();
    revert->failed++;
    if (error == -EINTR)
        return error; /* wb_cli_end reports it */
    wb_cli_fail(shown, "%s%s%s", what ? what : "", what ? ": " : "", wb_cli_errno(error));
    return error == -ENOSPC || error == -EDQUOT || error == -ENOTCONN || error == -EROFS ? error : 0;
}

void revert_report_begin(struct revert *revert)
{
    g_autofree char *literal = wb_json_literal(revert->place->given);
    char iso[WB_WHEN_TEXT_MAX];

    if (revert->json)
        printf("{\"path\":%s,\"when\":%" G_GINT64_FORMAT ",\"time\":\"%s\",\"dry_run\":%s,\"actions\":[",
               literal, revert->when, wb_when_print_iso(revert->when, iso), revert->dry ? "true" : "false");
    fflush(stdout);
}

static char *summary(const struct revert *revert)
{
    GString *text = g_string_new(NULL);
    char size[WB_TEXT_SIZE_MAX];

    for (int i = 0; i < REVERT_ACTIONS; i++) {
        if (revert->counts[i] == 0)
            continue;
        g_string_append_printf(text, "%s%" G_GUINT64_FORMAT " %s", text->len ? ", " : "", revert->counts[i],
                               revert->counts[i] == 1 ? words[i].one : words[i].many);
        if (i == REVERT_REWRITE && revert->bytes > 0)
            g_string_append_printf(text, " (%s)", wb_text_size(revert->bytes, size));
    }
    if (text->len == 0)
        g_string_append(text, revert->failed > 0 ? "nothing was changed"
                                                 : "nothing to do; it has not changed since then");
    return g_string_free(text, FALSE);
}

static bool anything(const struct revert *revert)
{
    for (int i = 0; i < REVERT_ACTIONS; i++) {
        if (revert->counts[i] > 0)
            return true;
    }
    return false;
}

void revert_report_end(struct revert *revert, int64_t before)
{
    const char *given = revert->place->given;
    g_autofree char *name = wb_text_printable(given);
    g_autofree char *quoted = wb_text_shell(given);
    g_autofree char *text = summary(revert);
    char epoch[WB_WHEN_TEXT_MAX], when[WB_WHEN_TEXT_MAX], then[WB_WHEN_TEXT_MAX];
    const char *all_links = revert->all_links ? " --all-links" : "";
    bool undo = anything(revert) && !revert->dry;

    wb_progress_clear();
    wb_when_print_epoch(before, epoch);
    if (revert->json) {
        g_autofree char *command = g_strdup_printf("vrevert %s --time %s%s", quoted, epoch, all_links);
        g_autofree char *literal = wb_json_literal(command);

        fputs("],\"counts\":{", stdout);
        for (int i = 0; i < REVERT_ACTIONS; i++)
            printf("%s\"%s\":%" G_GUINT64_FORMAT, i ? "," : "", words[i].name, revert->counts[i]);
        printf("},\"failed\":%" G_GUINT64_FORMAT ",\"undo\":%s}\n", revert->failed, undo ? literal : "null");
        return;
    }
    printf("%s%s as of %s (%s): %s\n", revert->dry ? "would revert " : "", name,
           wb_when_print(revert->when, 1, when), wb_when_print_epoch(revert->when, then), text);
    if (undo)
        printf("undo: vrevert %s --time %s%s\n", quoted, epoch, all_links);
}

bool revert_has(GHashTable *inodes, uint64_t inode)
{
    return g_hash_table_contains(inodes, &inode);
}

void revert_add(GHashTable *inodes, uint64_t inode)
{
    gint64 *key;

    if (revert_has(inodes, inode))
        return;
    key = g_new(gint64, 1);
    *key = (gint64)inode;
    g_hash_table_add(inodes, key);
}

void revert_touch_directory(struct revert *revert, int fd)
{
    struct stat st;

    if (fstatat(fd, ".", &st, 0) == 0)
        revert_add(revert->touched, st.st_ino);
}
