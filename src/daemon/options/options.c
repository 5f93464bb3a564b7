/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/options/options.h"

#include "format/format.h"
#include "wayback/at_name.h"
#include "wayback/when.h"
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char help_text[] =
    "Usage: wayback [mount] [options] SRC [MNT]\n"
    "       wayback --check-config [--json] SRC|FILE [PATH...]\n"
    "       wayback --config-path SRC\n"
    "\n"
    "Mounts the directory tree SRC at MNT and records every state of it: before it overwrites,\n"
    "removes or renames anything, Wayback saves the data that would be lost in SRC/.wayback.\n"
    "wayback.conf sets how long states are kept; in a new store for a week, and longer while space\n"
    "permits. Without MNT, or with MNT equal to SRC, the tree is mounted over itself.\n"
    "\n"
    "Options:\n"
    "  -f               run in the foreground\n"
    "  -d               debug: print every request; implies -f\n"
    "  -n, --dry-run    only check whether SRC can be mounted at MNT; change nothing\n"
    "  -h, --help       print this text\n"
    "  -V, --version    print the versions of Wayback and libfuse\n"
    "  --check-config   read wayback.conf of SRC (or of a mount, or such a file itself), and\n"
    "                   print all mistakes in it, or its meaning; for each PATH in the tree,\n"
    "                   the section that applies to it\n"
    "  --json           with --check-config: print JSON\n"
    "  --config-path    print the path of that file\n"
    "  --new-history    create a new history of SRC, whose history is in a store elsewhere\n"
    "                   (also -o new_history); the former store is not changed, and is not\n"
    "                   accepted for SRC any more\n"
    "  -o OPTION[,...]  mount options:\n"
    "     store=DIR       keep the history in DIR, outside of SRC\n"
    "     history=write   record every change (the default)\n"
    "     history=close   record the content of a file when it is closed or synced, and not\n"
    "                     the states in between; record everything else as it changes\n"
    "     history=none    record nothing: a plain pass-through, for comparison\n"
    "     onfull=refuse   if a change cannot be recorded (the store is full, or fails), it\n"
    "                     fails (the default)\n"
    "     onfull=continue make it nevertheless: the data that it overwrites are lost, and\n"
    "                     vstat shows a gap\n"
    "     onfull=prune    if the store is full, delete the oldest history that wayback.conf\n"
    "                     does not protect\n"
    "     ro              read-only access to the present and the past\n"
    "     at=TIME         the tree as it was at TIME, read-only, with or without a mount of\n"
    "                     the present; MNT must be given\n"
    "     snapdir=hidden  DIR/.snapshot has DIR at every snapshot; not listed (the default)\n"
    "     snapdir=visible the same, listed in every directory\n"
    "     snapdir=off     no such directory\n"
    "     snapdir=NAME    use NAME for it; may be combined with one of the others\n"
    "     at-sign=CHAR    use CHAR instead of @ in NAME@TIME, as in f%14:03 with\n"
    "                     at-sign=%\n"
    "     snapnames=gmt   list snapshots there as @GMT-2026.11.21-14.03.00, for Samba\n"
    "     branch=DIR      with at=TIME, as root: a writable copy of that state, which\n"
    "                     keeps its changes, and their history, in DIR\n"
    "     nonempty        mount over a directory that has files, and hide these\n"
    "     allow_other     give other users access (for ordinary users, this requires\n"
    "                     user_allow_other in /etc/fuse.conf)\n"
    "     allow_root      give root access\n"
    "     auto_remount    mount again if the daemon dies (not with -f)\n"
    "     no_open         for mounts of one user: the kernel opens and lists without asking\n"
    "                     the daemon, so reading what it has cached costs no messages\n"
    "     io_uring        exchange requests with the kernel by io_uring, which takes less time\n"
    "                     (the kernel's module fuse needs enable_uring)\n"
    "     landlock        root's daemon can open files in SRC and the store only; vstore\n"
    "                     cannot move the store meanwhile\n"
    "     noseccomp       do not filter the system calls of root's daemon\n"
    "     and the generic ones of mount(8): nosuid, nodev, noexec, noatime, sync, ...;\n"
    "     the first three are inherited from the mounts of SRC and the store, unless suid,\n"
    "     dev or exec is given; at= and branch= imply nosuid and nodev unless suid or dev\n"
    "     is given\n"
    "\n"
    "Examples:\n"
    "  wayback ~/work                          record ~/work, in place, until it is unmounted\n"
    "  wayback enable ~/work                   record it from now on and after each boot\n"
    "  wayback /srv/tree /mnt/tree             mount /srv/tree, with history, at /mnt/tree\n"
    "  wayback -o allow_other /srv /srv        as root, for every user of /srv\n"
    "  wayback -o store=/var/wb/srv /srv       keep the history on another disk\n"
    "  cat ~/work/report.txt@14:03             read a file as it was today at 14:03\n"
    "  ls ~/work/@yesterday/src                list a directory as of 00:00 yesterday\n"
    "  wayback -o at=yesterday ~/work /mnt     mount that state\n"
    "  ls ~/work/src/.snapshot                 list the snapshots of a directory\n"
    "  wayback config ~/work edit              configure automatic snapshots and more\n"
    "  fusermount3 -u ~/work                   unmount (as root: umount)\n"
    "\n"
    "'wayback help' lists the other verbs: log, diff, restore, ...\n"
    "\n"
    "See also: vstat, vextract, vrevert, vrm; wayback(1), wayback.conf(5).\n";

void wb_options_print_help(void)
{
    fputs(help_text, stdout);
}

/* Words that belong to mount(8), fstab or the init system, or ask for what is so anyway. */
static const char *const dropped[] = {
    "defaults",  "auto",       "noauto",   "user",       "nouser",        "users",
    "owner",     "group",      "nofail",   "_netdev",    "nonempty",      "acl",
    "noacl",     "user_xattr", "nouser_xattr", "atime",  "relatime",      "norelatime",
    "strictatime", "nostrictatime", "lazytime", "nolazytime", "diratime", "default_permissions",
    "iversion",  "noiversion", "mand",     "nomand",     "loud",          "silent",
    NULL,
};

/* Words that libfuse or the kernel understands. */
static const char *const passed[] = {
    "rw",       "async",   "sync",       "dirsync",
    "symfollow", "nosymfollow", "auto_unmount",
    NULL,
};

static const char *const dropped_prefixes[] = {"x-", "X-", "comment=", "user=", "uid=", "gid=", NULL};
static const char *const passed_prefixes[] = {
    "max_read=", "context=", "fscontext=", "defcontext=", "rootcontext=", "fsname=", NULL,
};

static bool begins_with_any(const char *word, const char *const *prefixes)
{
    for (; *prefixes; prefixes++)
        if (g_str_has_prefix(word, *prefixes))
            return true;
    return false;
}

static void pass(struct wb_options *options, const char *word)
{
    if (options->fuse->len > 0)
        g_string_append_c(options->fuse, ',');
    for (; *word; word++) {
        if (*word == '\\' || *word == ',')
            g_string_append_c(options->fuse, '\\');
        g_string_append_c(options->fuse, *word);
    }
}

static int take_history(struct wb_options *options, const char *value, struct wb_error *why)
{
    options->by_close = strcmp(value, "close") == 0;
    options->history = options->by_close || strcmp(value, "write") == 0;
    if (!options->history && strcmp(value, "none") != 0)
        return wb_error_set(why, -EINVAL, "history=%s: unknown; use history=write, history=close or history=none",
                            value);
    return 0;
}

static int take_onfull(struct wb_options *options, const char *value, struct wb_error *why)
{
    if (strcmp(value, "refuse") != 0 && strcmp(value, "continue") != 0 && strcmp(value, "prune") != 0)
        return wb_error_set(why, -EINVAL, "onfull=%s: unknown; use onfull=refuse, onfull=continue or onfull=prune",
                            value);
    options->lets_through = value[0] == 'c';
    options->prunes = value[0] == 'p';
    return 0;
}

#define SNAPDIR_IS_TIME "snapdir=%s: reads as a time, or as something at a time; choose another name"

static int take_snapdir(struct wb_options *options, const char *value, struct wb_error *why)
{
    struct wb_time time;

    if (strcmp(value, "hidden") == 0)
        options->snapdir = WB_SNAPDIR_HIDDEN;
    else if (strcmp(value, "visible") == 0)
        options->snapdir = WB_SNAPDIR_VISIBLE;
    else if (strcmp(value, "off") == 0)
        options->snapdir = WB_SNAPDIR_OFF;
    else if (value[0] == '\0' || strlen(value) > WB_NAME_MAX || strchr(value, '/') ||
             strcmp(value, ".") == 0 || strcmp(value, "..") == 0)
        return wb_error_set(why, -EINVAL,
                            "snapdir=%s: invalid; use hidden, visible, off, or a name for the "
                            "directory, e.g. snapdir=.zfs",
                            value);
    else if (wb_time_parse(value, wb_when_now(), &time) == 0)
        return wb_error_set(why, -EINVAL, SNAPDIR_IS_TIME, value);
    else if (strcmp(value, WB_STORE_NAME) == 0 || strcmp(value, WB_STAGING_NAME) == 0)
        return wb_error_set(why, -EINVAL,
                            "snapdir=%s: this is the directory of the history itself; "
                            "choose another name",
                            value);
    else {
        g_free(options->snapdir_name);
        options->snapdir_name = g_strdup(value);
    }
    return 0;
}

static int take_snapnames(struct wb_options *options, const char *value, struct wb_error *why)
{
    if (strcmp(value, "gmt") != 0 && strcmp(value, "name") != 0)
        return wb_error_set(why, -EINVAL,
                            "snapnames=%s: unknown; use snapnames=name or "
                            "snapnames=gmt",
                            value);
    options->snapnames_gmt = value[0] == 'g';
    return 0;
}

static int take_at_sign(struct wb_options *options, const char *value, struct wb_error *why)
{
    if (strlen(value) != 1 || !wb_at_sign_check(value[0]))
        return wb_error_set(why, -EINVAL, "at-sign=%s: not allowed between NAME and TIME; use one of %s", value,
                            WB_AT_SIGNS);
    options->at_sign = value[0];
    return 0;
}

static bool take_permit(struct wb_options *options, const char *word)
{
    bool no = g_str_has_prefix(word, "no");
    const char *name = no ? word + strlen("no") : word;
    enum wb_permit *permit = strcmp(name, "suid") == 0   ? &options->suid
                                  : strcmp(name, "dev") == 0  ? &options->dev
                                  : strcmp(name, "exec") == 0 ? &options->exec
                                                              : NULL;

    if (permit)
        *permit = no ? WB_PERMIT_NO : WB_PERMIT_YES;
    return permit != NULL;
}

static int take_word(struct wb_options *options, const char *word, struct wb_error *why)
{
    if (g_str_has_prefix(word, "store=")) {
        g_free(options->store);
        options->store = g_strdup(word + strlen("store="));
        if (options->store[0] == '\0')
            return wb_error_set(why, -EINVAL, "store=: the directory is missing, e.g. store=/var/wb");
    } else if (g_str_has_prefix(word, "at=")) {
        g_free(options->at);
        options->at = g_strdup(word + strlen("at="));
        if (options->at[0] == '\0')
            return wb_error_set(why, -EINVAL, "at=: the time is missing, e.g. at=yesterday or at=14:03");
    } else if (g_str_has_prefix(word, "branch=")) {
        g_free(options->branch);
        options->branch = g_strdup(word + strlen("branch="));
        if (options->branch[0] == '\0')
            return wb_error_set(why, -EINVAL, "branch=: the directory is missing, e.g. branch=/var/wb/branch");
    } else if (g_str_has_prefix(word, "history=")) {
        return take_history(options, word + strlen("history="), why);
    } else if (g_str_has_prefix(word, "onfull=")) {
        return take_onfull(options, word + strlen("onfull="), why);
    } else if (g_str_has_prefix(word, "snapdir=")) {
        return take_snapdir(options, word + strlen("snapdir="), why);
    } else if (g_str_has_prefix(word, "snapnames=")) {
        return take_snapnames(options, word + strlen("snapnames="), why);
    } else if (g_str_has_prefix(word, "at-sign=")) {
        return take_at_sign(options, word + strlen("at-sign="), why);
    } else if (strcmp(word, "nonempty") == 0) {
        options->nonempty = true;
    } else if (strcmp(word, "new_history") == 0) {
        options->new_history = true;
    } else if (strcmp(word, "no_open") == 0) {
        options->no_open = true;
    } else if (strcmp(word, "ro") == 0) {
        options->read_only = true;
    } else if (strcmp(word, "rw") == 0) {
        options->read_only = false;
    } else if (strcmp(word, "allow_other") == 0) {
        options->allow_other = true;
        pass(options, word);
    } else if (strcmp(word, "allow_root") == 0) {
        options->allow_other = true;
        pass(options, word);
    } else if (take_permit(options, word)) {
        return 0;
    } else if (strcmp(word, "noatime") == 0 || strcmp(word, "nodiratime") == 0) {
        *(word[2] == 'a' ? &options->noatime : &options->nodiratime) = true;
        pass(options, word);
    } else if (strcmp(word, "auto_remount") == 0 || strcmp(word, "noauto_remount") == 0) {
        options->auto_remount = word[0] == 'a';
    } else if (strcmp(word, "io_uring") == 0 || strcmp(word, "no_io_uring") == 0) {
        options->io_uring = word[0] == 'i';
    } else if (g_str_has_prefix(word, "io_uring_q_depth=")) {
        return wb_error_set(why, -EINVAL, "%s: the number of buffers is no option any more (there are as many as "
                            "requests need); leave it out", word);
    } else if (strcmp(word, "landlock") == 0 || strcmp(word, "nolandlock") == 0) {
        options->landlock = word[0] == 'l';
    } else if (strcmp(word, "seccomp") == 0 || strcmp(word, "noseccomp") == 0) {
        options->noseccomp = word[0] == 'n';
    } else if (strcmp(word, "debug") == 0) {
        options->debug = options->foreground = true;
    } else if (g_strv_contains(passed, word) || begins_with_any(word, passed_prefixes)) {
        pass(options, word);
    } else if (!g_strv_contains(dropped, word) && !begins_with_any(word, dropped_prefixes)) {
        return wb_error_set(why, -EINVAL, "-o %s: no such option; `wayback --help` lists them", word);
    }
    return 0;
}

static int take_words(struct wb_options *options, const char *list, struct wb_error *why)
{
    g_autoptr(GString) word = g_string_new(NULL);
    int r = 0;

    for (const char *at = list; r == 0; at++) {
        /* As libfuse and fusermount3 have it: a backslash takes the next character as it is. */
        if (*at == '\\' && at[1]) {
            g_string_append_c(word, *++at);
        } else if (*at && *at != ',') {
            g_string_append_c(word, *at);
        } else {
            if (word->len > 0)
                r = take_word(options, word->str, why);
            g_string_truncate(word, 0);
            if (!*at)
                break;
        }
    }
    return r;
}

static int take_paths(struct wb_options *options, int count, char **paths, struct wb_error *why)
{
    if (count == 0)
        return wb_error_set(why, -EINVAL, "SRC is missing; usage: wayback [options] SRC [MNT]");
    if (options->json && !options->check_config)
        return wb_error_set(why, -EINVAL, "--json: only with --check-config");
    if (options->check_config && !options->config_path) {
        options->paths = g_strdupv(paths + 1);
    } else if (options->config_path) {
        if (count > 1)
            return wb_error_set(why, -EINVAL, "%s: extra argument; name one tree, mount or file", paths[1]);
    } else if (count > 2)
        return wb_error_set(why, -EINVAL,
                            "%s: extra argument; usage: wayback [options] "
                            "SRC [MNT]",
                            paths[2]);
    options->source = g_strdup(paths[0]);
    options->mountpoint = g_strdup(count == 2 ? paths[1] : paths[0]);
    return 0;
}

/* Without OPEN and RELEASE the users of a file are not known, nor when they close it. */
static int check_no_open(const struct wb_options *options, struct wb_error *why)
{
    const char *other = options->allow_other                          ? "allow_other"
                        : options->by_close                           ? "history=close"
                        : options->at                                 ? "at=TIME"
                        : options->branch                             ? "branch=DIR"
                                                                      : NULL;
    const char *reason = options->allow_other ? "it is for mounts of one user"
                         : options->by_close  ? "no message says when a file is closed"
                                              : "they were not tested together";

    return options->no_open && other
               ? wb_error_set(why, -EINVAL, "no_open and %s exclude each other (%s); leave one of them out", other,
                              reason)
               : 0;
}

/* What contradicts itself; known only when everything was read. */
static int check_moment(struct wb_options *options, struct wb_error *why)
{
    const char *key = options->branch ? "branch" : "at";
    const char *value = options->branch ? options->branch : options->at;

    if (strchr(options->snapdir_name, options->at_sign))
        return wb_error_set(why, -EINVAL, SNAPDIR_IS_TIME, options->snapdir_name);
    if (options->by_close && options->lets_through)
        return wb_error_set(why, -EINVAL,
                            "history=close and onfull=continue exclude each other (gaps require "
                            "history=write); leave one of them out");
    if (options->new_history && (value || !options->history || options->read_only))
        return wb_error_set(why, -EINVAL, "--new-history requires a mount that records; leave out %s",
                            value               ? key
                            : !options->history ? "history=none"
                                                : "ro");
    if (!value)
        return 0;
    if (!options->history)
        return wb_error_set(why, -EINVAL,
                            "%s=%s and history=none exclude each other (there is no past without "
                            "history); leave one of them out",
                            key, value);
    if (strcmp(options->source, options->mountpoint) == 0)
        return wb_error_set(why, -EINVAL, "%s=%s: MNT is missing; usage: wayback -o %s=%s SRC MNT", key, value, key,
                            value);
    if (options->branch && options->auto_remount)
        return wb_error_set(why, -EINVAL,
                            "branch=%s: a branch cannot be mounted again automatically; leave "
                            "auto_remount out",
                            options->branch);
    if (!options->branch)
        options->read_only = true;
    return 0;
}

/* Of long options without a letter. */
enum { OPTION_CHECK_CONFIG = 256, OPTION_CONFIG_PATH, OPTION_JSON, OPTION_NEW_HISTORY };

int wb_options_parse(struct wb_options *options, int argc, char **argv, struct wb_error *why)
{
    static const struct option long_options[] = {
        {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'V'},
        {"foreground", no_argument, NULL, 'f'},
        {"debug", no_argument, NULL, 'd'},
        {"check-config", no_argument, NULL, OPTION_CHECK_CONFIG},
        {"config-path", no_argument, NULL, OPTION_CONFIG_PATH},
        {"json", no_argument, NULL, OPTION_JSON},
        {"new-history", no_argument, NULL, OPTION_NEW_HISTORY},
        {"dry-run", no_argument, NULL, 'n'},
        {NULL, 0, NULL, 0},
    };
    int letter, r = 0;

    *options = (struct wb_options){
        .history = true,
        .at_sign = WB_AT_SIGN,
        .snapdir_name = g_strdup(WB_SNAPDIR_NAME),
        .fuse = g_string_new(NULL),
    };
    opterr = 0;
    while (r == 0 && (letter = getopt_long(argc, argv, ":fdhnVo:", long_options, NULL)) != -1) {
        switch (letter) {
        case 'd':
            options->debug = true;
            /* fall through */
        case 'f':
            options->foreground = true;
            break;
        case 'n':
            options->dry_run = true;
            break;
        case 'h':
            options->help = true;
            return 0;
        case 'V':
            options->version = true;
            return 0;
        case OPTION_CHECK_CONFIG:
            options->check_config = true;
            break;
        case OPTION_CONFIG_PATH:
            options->config_path = true;
            break;
        case OPTION_JSON:
            options->json = true;
            break;
        case OPTION_NEW_HISTORY:
            options->new_history = true;
            break;
        case 'o':
            r = take_words(options, optarg, why);
            break;
        case ':':
            r = wb_error_set(why, -EINVAL, "%s: the list of options is missing", argv[optind - 1]);
            break;
        default:
            r = wb_error_set(why, -EINVAL, "%s: no such option; `wayback --help` lists them",
                             optopt ? (char[]){'-', (char)optopt, '\0'} : argv[optind - 1]);
        }
    }
    if (r == 0)
        r = take_paths(options, argc - optind, argv + optind, why);
    if (r == 0)
        r = check_no_open(options, why);
    return r < 0 ? r : check_moment(options, why);
}

void wb_options_deinit(struct wb_options *options)
{
    g_free(options->source);
    g_free(options->mountpoint);
    g_free(options->store);
    g_free(options->at);
    g_free(options->snapdir_name);
    g_free(options->branch);
    g_strfreev(options->paths);
    if (options->fuse)
        g_string_free(options->fuse, TRUE);
    *options = (struct wb_options){0};
}
