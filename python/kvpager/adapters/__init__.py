"""kvpager behind the interfaces of existing engines. Import the one that is wanted."""
