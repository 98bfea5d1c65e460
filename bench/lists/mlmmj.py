"""mlmmj: mail reaches it through a program of an alias, and it sends by SMTP to mailrace."""

import os
import pathlib
import shutil

from rooms import FAR, LISTS, LOST, Failed, Room, Skipped, give, header

PROGRAMS = ("mlmmj-make-ml", "mlmmj-receive", "mlmmj-sub", "mlmmj-send")


def make_list(room, name, **control):
    """A list as its manual makes it; returns its directory."""
    spool = room.work / "mlmmj"
    spool.mkdir(exist_ok=True)
    give(spool)
    # Domain, owner, language of texts, and no entry in the aliases of the machine.
    room.run(shutil.which("mlmmj-make-ml"), "-L", name, "-s", spool, stdin=f"{LISTS}\nowner@{FAR}\n\n")
    directory = spool / name
    values = {"relayhost": "127.0.0.1", "smtpport": room.server.port, **control}
    for key, value in values.items():
        (directory / "control" / key).write_text(f"{value}\n")
    give(directory)
    return directory


def subscribe(room, directory, *people):
    for each in people:
        room.run(shutil.which("mlmmj-sub"), "-L", directory, "-a", each, "-f", "-q", "-s")


def subscribers(directory):
    files = (directory / "subscribers.d").iterdir()
    return {line for file in files for line in file.read_text().split()}


def try_it(program, work, is_root=False):
    if missing := [each for each in PROGRAMS if not shutil.which(each)]:
        raise Skipped(f"{', '.join(missing)} missing; install mlmmj")
    room = Room("mlmmj-by-helper" if is_root else "mlmmj", program, work, is_root)
    try:
        receive = pathlib.Path(shutil.which("mlmmj-receive"))
        line = f'{{0}}: "|{receive} -L {room.work}/mlmmj/{{0}}/"\n'
        room.write("aliases", line.format("talk") + line.format("batch") + f"loopy: talk@{LISTS}\n")
        settings = {"local__programs": f'["{receive.parent}"]'}
        if is_root:
            settings |= {"local__default_user": "nobody", "server__user": "daemon"}
        room.serve(**settings)
        posts(room)
        commands(room)
        bounces(room)
        loops(room)
        together(room)
        room.ends_empty()
    except Failed as why:
        room.faults.append(f"no further: {why}")
    finally:
        room.stop()
    return room


def try_it_by_helper(program, work):
    """The same with a mailrace that was started as root: programs are run by its helper."""
    return try_it(program, work, is_root=True)


def posts(room):
    """A post reaches every subscriber, each with a return path of his own."""
    headers = f"List-Id: Talk <talk.{LISTS}>\nPrecedence: list"
    talk = make_list(room, "talk", customheaders=headers, prefix="[talk]")
    people = [f"{name}@{FAR}" for name in ("ann", "bob", "carol")]
    subscribe(room, talk, *people, LOST)
    room.send(people[0], [f"talk@{LISTS}"], "first")
    room.reaches_all("every subscriber has the post", people)
    room.misses_the_lost(people)
    (talk / "subscribers.d" / "l").unlink()
    for each in people:
        (mail,) = room.hop.to(each)
        list_id = header(mail.content, "List-Id")
        room.check("it has a List-Id", list_id == [f"Talk <talk.{LISTS}>"], list_id)
        room.check("its subject has the prefix", header(mail.content, "Subject") == ["[talk] first"])
        path = f"talk+bounces-1-{each.replace('@', '=')}@{LISTS}"
        room.check("it comes from the address for bounces", mail.sender == path, mail.sender)


def commands(room):
    """Commands by mail: the detail of the address says which."""
    talk = room.work / "mlmmj" / "talk"
    dave = f"dave@{FAR}"
    room.send(dave, [f"talk+subscribe@{LISTS}"], "subscribe")
    (asked,) = room.await_that("dave is asked to confirm", lambda: room.hop.to(dave))
    confirm = header(asked.content, "Reply-To")
    room.check("the answer goes to an address with a detail", confirm and confirm[0].startswith("talk+confsub-"), confirm)
    room.send(dave, [confirm[0]], "Re: confirm")
    room.await_that("dave is welcomed", lambda: len(room.hop.to(dave)) == 2)
    room.check("dave is a subscriber", dave in subscribers(talk), subscribers(talk))
    room.send(dave, [f"talk+help@{LISTS}", f"talk+faq@{LISTS}"], "help")
    has_both = lambda: room.hop.to(dave)[3:] and room.hop.to(dave)[2:]
    answers = room.await_that("two details in one transaction are two commands", has_both)
    subjects = {header(each.content, "Subject")[0] for each in answers}
    room.check("with an answer to each", len(subjects) == 2, subjects)


def bounces(room):
    """What the next hop refuses comes back to the list, which notes whose it was."""
    talk = room.work / "mlmmj" / "talk"
    subscribe(room, talk, f"refused@{FAR}")
    before = len(room.hop.messages)
    room.send(f"ann@{FAR}", [f"talk@{LISTS}"], "second")
    noted = talk / "bounce" / f"refused={FAR}"
    room.await_that("the list notes who is not reached", noted.exists, otherwise=lambda: room.log()[-3000:])
    room.await_that("the others have the post", lambda: len(room.hop.messages) == before + 4)
    names = [each.name for each in noted.parent.iterdir() if "lastmsg" not in each.name]
    room.check("nobody else is noted", names == [noted.name], names)
    (talk / "subscribers.d" / "r").unlink()


def loops(room):
    """A subscriber whose mail comes back to the list."""
    talk = room.work / "mlmmj" / "talk"
    subscribe(room, talk, f"loopy@{LISTS}")
    index = talk / "index"
    last = int(index.read_text())
    room.send(f"bob@{FAR}", [f"talk@{LISTS}"], "in a circle")
    refused = f"554 5.4.6 <talk@{LISTS}>... Mail forwarding loop"
    room.await_that("the circle ends, and the list hears of it", lambda: refused in room.log(), otherwise=lambda: room.log()[-3000:])
    room.check("the list has sent it once", int(index.read_text()) == last + 1, index.read_text())
    (talk / "subscribers.d" / "l").unlink()


def together(room):
    """Without VERP: many recipients in one transaction; whoever cannot be served now waits as bulk mail."""
    batch = make_list(room, "batch", verp="", maxverprecips=50, customheaders="Precedence: bulk")
    people = [f"member{number}@{FAR}" for number in range(60)]
    subscribe(room, batch, *people, f"later@{FAR}", f"refused@{FAR}")
    room.send(people[0], [f"batch@{LISTS}"], "to all")
    room.await_that("every subscriber of many has the post", lambda: all(room.hop.to(each) for each in people))
    room.check("each once", not room.missed(people), room.missed(people))
    mail = room.hop.to(people[0])[0]
    room.check("many recipients go together", len(mail.recipients) > 10, len(mail.recipients))
    room.check("the return path is one for all", mail.sender == f"batch+bounces-1@{LISTS}", mail.sender)
    late = f"later@{FAR}"
    (waits,) = room.await_that("one waits", lambda: room.waiting_for(late))
    room.check("as bulk mail", waits.get("class") == "bulk", waits)
    room.is_found_by_destination(late)
    room.control("queue", "delete", "--to", late)
