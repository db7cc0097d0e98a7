#!/usr/bin/env python3
"""Are the fields of every struct where they were?

    abi_members.py OLD NEW      two files of abidw

abidiff can be told to let a struct grow at its end, and then overlooks other changes of it; this
looks at those. A field that was there must have its name, place and type, and a new one begins
where the old struct ended, or takes the place of `reserved`. Prints what is wrong; status 1 then.
"""

import sys
import xml.etree.ElementTree as ElementTree


def types_of(root):
    """Each type's id -> what can be seen of it from outside: kind, name, bits, elements."""
    found = {}
    for node in root.iter():
        if "id" in node.attrib:
            named = node.get("name") if node.tag != "typedef-decl" else None
            found[node.get("id")] = (node.tag, named, node.get("size-in-bits"),
                                     node.get("dimensions"), node.get("type-id"))
    return found


def shown(types, type_id, depth=0):
    """A type as text: pointers not followed, typedefs and const looked through."""
    kind, name, bits, dimensions, of = types.get(type_id, (type_id, None, None, None, None))
    if kind in ("typedef-decl", "qualified-type-def") and depth < 8:
        return shown(types, of, depth + 1)
    element = f" of {shown(types, of, depth + 1)}" if kind == "array-type-def" else ""
    return f"{kind} {name or ''} {bits or ''} {dimensions or ''}{element}"


def structs_of(path):
    """{struct: (bits, {field: (place, type)})}"""
    root = ElementTree.parse(path).getroot()
    types = types_of(root)
    found = {}
    for node in root.iter("class-decl"):
        fields = {}
        for member in node.findall("data-member"):
            field = member.find("var-decl")
            fields[field.get("name")] = (int(member.get("layout-offset-in-bits")),
                                         shown(types, field.get("type-id")))
        if fields:
            found[node.get("name")] = (int(node.get("size-in-bits")), fields)
    return found


def main():
    old, new = structs_of(sys.argv[1]), structs_of(sys.argv[2])
    wrong = []
    for name, (bits, fields) in sorted(old.items()):
        if name not in new:
            continue  # abidiff says so, if a function had to do with it
        now_bits, now = new[name]
        room = {place for field, (place, _) in fields.items() if field.startswith("reserved")}
        if now_bits < bits:
            wrong.append(f"{name}: is shorter than it was")
        for field, where in fields.items():
            if now.get(field) != where and not field.startswith("reserved"):
                wrong.append(f"{name}.{field}: was {where}, is {now.get(field)}")
        for field, (place, _) in now.items():
            if field not in fields and place < bits and place not in room:
                wrong.append(f"{name}.{field}: is new, and not at the end")
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
