/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/main/verbs.h"

#include "daemon/session/daemonize.h"
#include <errno.h>
#include <glib.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct wb_verb {
    const char *name;
    const char *tool;    /* NULL: answered here */
    const char *option;  /* that the tool gets first, or NULL */
    const char *summary; /* NULL: not on the first screen */
};

/* In the order of the first screen. */
static const struct wb_verb verbs[] = {
    {"enable", "venable", NULL, "record a directory from now on and after each boot (also: disable)"},
    {"config", "vconfig", NULL, "show, check or change how long versions are kept"},
    {"mount", NULL, NULL, "record a tree until 'wayback unmount' (also: wayback SRC [MNT])"},
    {"status", "vstatus", NULL, "is this place recorded, since when, by which mount"},
    {"browse", "vbrowse", NULL, "look, compare, restore, on the terminal (also: web, as a page)"},
    {"log", "vlog", NULL, "all changes below a directory, by command"},
    {"list", "vstat", NULL, "the versions of a file"},
    {"diff", "vdiff", NULL, "the differences since a time"},
    {"find", "vfind", NULL, "names that exist or ever did, deleted ones too"},
    {"show", "vextract", "--show", "a file's content at a time, or a directory's list (also: extract)"},
    {"restore", "vrevert", NULL, "put a past state back (this can be undone)"},
    {"undo", "vundo", NULL, "undo the newest restore; again: the one before (also: redo)"},
    {"snap", "vsnap", NULL, "give moments names, and keep them"},
    {"usage", "vdf", NULL, "the space that the history takes"},
    {"forget", "vprune", NULL, "delete old history (also: rm, a file with its whole history)"},
    {"check", "vfsck", NULL, "check the store of a tree, and repair it"},
    {"send", "vsend", NULL, "copy a tree with its history to DIR or HOST:DIR"},
    {"help", NULL, NULL, "this text; help VERB; help TOPIC (a manual page)"},
    {"web", "vweb", NULL, NULL},
    {"rm", "vrm", NULL, NULL},
    {"disable", "vdisable", NULL, NULL},
    {"extract", "vextract", NULL, NULL},
    {"redo", "vundo", "--redo", NULL},
    {"mounts", "vstatus", "--all", NULL},
    {"unmount", NULL, NULL, NULL},
    {"receive", "vreceive", NULL, NULL},
    {"store", "vstore", NULL, NULL},
    {"pack", "vcompact", NULL, NULL},
    {"dump", "vdump", NULL, NULL},
};

static const struct {
    const char *topic, *page;
} topics[] = {{"settings", "wayback.conf"}, {"wayback.conf", "wayback.conf"}, {"options", "wayback"},
              {"wayback", "wayback"},     {"mount.wayback", "mount.wayback"}, {"library", "libwayback"},
              {"libwayback", "libwayback"}};

const struct wb_verb *wb_verb_find(const char *word)
{
    for (size_t i = 0; i < G_N_ELEMENTS(verbs); i++)
        if (strcmp(verbs[i].name, word) == 0)
            return &verbs[i];
    return NULL;
}

#define WORD_MAX 16

/*
 * How many letters have to be inserted, removed, replaced or swapped with the next to make one of the other: the
 * "optimal string alignment" distance. Both are shorter than WORD_MAX.
 */
static unsigned distance(const char *one, const char *other)
{
    unsigned steps[WORD_MAX][WORD_MAX];
    size_t lines = strlen(one), columns = strlen(other);

    for (size_t i = 0; i <= lines; i++) {
        for (size_t j = 0; j <= columns; j++) {
            unsigned least = (unsigned)(i + j);

            if (i > 0 && j > 0) {
                least = MIN(steps[i - 1][j], steps[i][j - 1]) + 1;
                least = MIN(least, steps[i - 1][j - 1] + (one[i - 1] != other[j - 1]));
            }
            if (i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1])
                least = MIN(least, steps[i - 2][j - 2] + 1);
            steps[i][j] = least;
        }
    }
    return steps[lines][columns];
}

const char *wb_verb_guess(const char *word)
{
    const char *best = NULL;
    unsigned least = 3; /* more letters make another word, and so do fewer in a short one */

    if (strlen(word) >= WORD_MAX || strchr(word, '/'))
        return NULL;
    for (size_t i = 0; i < G_N_ELEMENTS(verbs); i++) {
        unsigned steps = distance(word, verbs[i].name);

        if (steps < least && steps <= strlen(verbs[i].name) / 3) {
            best = verbs[i].name;
            least = steps;
        }
    }
    return best;
}

/* ---- help -------------------------------------------------------------------------------------------- */

static void print_verbs(void)
{
    printf("Usage: wayback VERB [OPTION...] [PATH...]\n\n");
    for (size_t i = 0; i < G_N_ELEMENTS(verbs); i++)
        if (verbs[i].summary)
            printf("  %-9s%s\n", verbs[i].name, verbs[i].summary);
    printf("\n"
           "  wayback enable ~/work --keep 30d            record ~/work from now on\n"
           "  wayback log --since \"1 hour ago\" ~/work     its changes since then\n"
           "  wayback restore -t 14:03 ~/work/report.txt  as it was at 14:03\n");
}

/* ---- execution ------------------------------------------------------------------------------------------ */

/* The tool in the directory of this program, by the name it was called by or by its file; or NULL. g_free. */
static char *beside(const char *program, const char *tool)
{
    g_autofree char *file = g_file_read_link("/proc/self/exe", NULL);
    const char *places[] = {strchr(program, '/') ? program : NULL, file};

    for (size_t i = 0; i < G_N_ELEMENTS(places); i++) {
        g_autofree char *directory = places[i] ? g_path_get_dirname(places[i]) : NULL;
        g_autofree char *path = directory ? g_build_filename(directory, tool, NULL) : NULL;

        if (path && access(path, X_OK) == 0)
            return g_steal_pointer(&path);
    }
    return g_find_program_in_path(tool);
}

static int execute(const char *program, const char *tool, char **arguments)
{
    g_autofree char *path = beside(program, tool);

    if (path)
        execv(path, arguments);
    fprintf(stderr, "wayback: %s: %s; it belongs to Wayback and should be installed beside it\n", tool,
            g_strerror(path ? errno : ENOENT));
    return WB_RUN_FAILED;
}

/* `first`: an argument before the others, or NULL. */
static int run_tool(const char *program, const struct wb_verb *verb, const char *first, char **rest)
{
    g_autofree char *name = g_strdup_printf("wayback %s", verb->name);
    g_autoptr(GPtrArray) arguments = g_ptr_array_new();

    g_ptr_array_add(arguments, name);
    if (verb->option)
        g_ptr_array_add(arguments, (char *)verb->option);
    if (first)
        g_ptr_array_add(arguments, (char *)first);
    for (; *rest; rest++)
        g_ptr_array_add(arguments, *rest);
    g_ptr_array_add(arguments, NULL);
    return execute(program, verb->tool, (char **)arguments->pdata);
}

/* As the user who mounted does it; root's mounts are root's to unmount. */
static int unmount(int argc, char **argv)
{
    char *const as_root[] = {(char *)"umount", (char *)"--", argv[2], NULL};
    char *const as_user[] = {(char *)"fusermount3", (char *)"-u", (char *)"--", argv[2], NULL};
    char *const *arguments = geteuid() == 0 ? as_root : as_user;

    if (argc != 3 || argv[2][0] == '-') {
        fprintf(stderr, "Usage: wayback unmount PATH\n\nEnds the mount at PATH. Its history stays.\n");
        return argc == 3 && (strcmp(argv[2], "--help") == 0 || strcmp(argv[2], "-h") == 0) ? WB_RUN_DONE : WB_RUN_USAGE;
    }
    execvp(arguments[0], arguments);
    fprintf(stderr, "wayback: %s: %s\n", arguments[0], g_strerror(errno));
    return WB_RUN_FAILED;
}

static int show_page(const char *page)
{
    char *const arguments[] = {(char *)"man", (char *)page, NULL};

    execvp("man", arguments);
    fprintf(stderr, "wayback: man %s: %s; the manual pages are also in docs/man of the source\n", page,
            g_strerror(errno));
    return WB_RUN_FAILED;
}

static int complain(const char *word)
{
    const char *guess = wb_verb_guess(word);

    fprintf(stderr, "wayback: help %s: no such verb or topic", word);
    if (guess)
        fprintf(stderr, "; is '%s' meant?\n", guess);
    else
        fprintf(stderr, "; 'wayback help' lists the verbs, and the topics are settings, options and library\n");
    return WB_RUN_USAGE;
}

static int help(int argc, char **argv)
{
    static char *none[] = {NULL};
    const struct wb_verb *verb;

    if (argc <= 2 || argv[2][0] == '-') {
        print_verbs();
        return WB_RUN_DONE;
    }
    verb = wb_verb_find(argv[2]);
    if (verb && verb->tool)
        return run_tool(argv[0], verb, "--help", none);
    if (verb && strcmp(verb->name, "mount") == 0)
        return WB_VERB_EXPLAIN;
    if (verb) {
        print_verbs();
        return WB_RUN_DONE;
    }
    for (size_t i = 0; i < G_N_ELEMENTS(topics); i++)
        if (strcmp(topics[i].topic, argv[2]) == 0)
            return show_page(topics[i].page);
    return complain(argv[2]);
}

int wb_verb_run(const struct wb_verb *verb, int argc, char **argv)
{
    if (verb->tool)
        return run_tool(argv[0], verb, NULL, argv + 2);
    if (strcmp(verb->name, "help") == 0)
        return help(argc, argv);
    if (strcmp(verb->name, "unmount") == 0)
        return unmount(argc, argv);
    return WB_VERB_MOUNT;
}
